"""Settings of the broker, and the history of changes."""

from smq.front.console.desk import BrokerSetting
from smq.store.config_changes import ConfigChange
from tests.front.console.fake_desk import HOSTILE, Browser, FakeDesk

SETTINGS = [
    BrokerSetting("port", "9092", "set at the start", is_read_only=True, is_secret=False),
    BrokerSetting("log.retention.ms", "1000", "default", is_read_only=False, is_secret=False),
    BrokerSetting("password", "hush", "set at the start", is_read_only=True, is_secret=True),
]
CHANGE = ConfigChange(
    1_700_000_000_000, "topic", "clicks", "retention.ms", None, "5", HOSTILE, "10.0.0.7"
)


def test_it_says_what_is_set_where_and_what_a_change_needs() -> None:
    page = Browser(FakeDesk(of_broker=SETTINGS)).text("/settings")
    assert "9092" in page
    assert "needs a restart" in page
    assert "takes effect at once" in page
    assert "hush" not in page


def test_settings_are_found_by_name_and_by_being_set() -> None:
    browser = Browser(FakeDesk(of_broker=SETTINGS))
    assert "9092" not in browser.text("/settings?q=retention")
    page = browser.text("/settings?only=set")
    assert "log.retention.ms" not in page
    assert "9092" in page


def test_changes_say_who_made_them_and_what_was_before() -> None:
    page = Browser(FakeDesk(changed=[CHANGE] * 60)).text("/settings")
    assert "60 changes, page 1 of 2" in page
    assert 'href="/topics/clicks"' in page
    assert "10.0.0.7" in page
    assert "<script>" not in page.split("<main")[1]
    assert "Nobody has changed" in Browser().text("/settings")


def test_a_setting_is_changed_and_given_back() -> None:
    desk = FakeDesk(of_broker=SETTINGS)
    browser = Browser(desk)
    page = browser.text("/settings")
    assert "<option>log.retention.ms</option>" in page
    assert "<option>port</option>" not in page
    said = browser.said("/settings", name="log.retention.ms", value="7", do="set")
    assert "log.retention.ms is 7." in said
    browser.said("/settings", name="log.retention.ms", do="reset")
    assert desk.done[-2:] == [
        ("set broker", "log.retention.ms", "7"),
        ("set broker", "log.retention.ms", None),
    ]
    assert browser.post("/settings", "wrong", name="port", value="1").status == 403
