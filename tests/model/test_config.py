"""Sources, bounds, relations and sizes of the configuration."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from smq.model.config import SETTINGS, Config, Machine, documentation, parse
from smq.model.setting import GiB, KiB, MiB

MACHINE = Machine(4, 16 * GiB, Path("/home/someone/.local/share/smq"), Path("/tmp/smq-1"))


def config_of(**sources: Any) -> Config:
    config = parse(MACHINE, **sources)
    assert isinstance(config, Config), config
    return config


def problems_of(**sources: Any) -> list[str]:
    problems = parse(MACHINE, **sources)
    assert isinstance(problems, list)
    return problems


def sized(config: Config, log_count: int, memory_bytes: int) -> Config:
    result = config.sized(log_count, memory_bytes)
    assert isinstance(result, Config), result
    return result


def test_defaults_come_from_the_machine() -> None:
    config = config_of()
    assert config.shards == 3
    assert config.data_dir == MACHINE.data_home
    assert config.filer_root == str(MACHINE.data_home / "filer")
    assert config.runtime_dir == MACHINE.runtime_home


def test_one_core_gives_one_shard() -> None:
    config = parse(MACHINE._replace(cores=1))
    assert isinstance(config, Config)
    assert config.shards == 1


def test_each_source_wins_over_the_one_before() -> None:
    file = "port = 1\nshards = 1\nseal.bytes = '1MiB'\n[group]\nmax.size = 7\n"
    environment = {"SMQ_PORT": "2", "SMQ_SHARDS": "2", "HOME": "/"}
    config = config_of(file=file, environment=environment, command_line={"port": 3})
    assert (config.port, config.shards) == (3, 2)
    assert (config.seal_bytes, config.group_max_size) == (MiB, 7)


def test_every_problem_is_named_at_once() -> None:
    problems = problems_of(
        file="prot = 1\nshards = 'many'",
        environment={"SMQ_DURABILITY": "quantum", "SMQ_AUTO_CREATE_TOPICS_ENABLE": "perhaps"},
        command_line={"port": 70000, "seal.ms": "0"},
    )
    assert problems == [
        "prot (configuration file): there is no such setting; did you mean port?",
        "shards (configuration file): 'many' is not a whole number",
        "durability (environment): 'quantum' is none of memory, os, disk",
        "auto.create.topics.enable (environment): 'perhaps' is neither true nor false",
        "port (command line): 70000 is too large; it must be at most 65535",
        "seal.ms (command line): 0 is too small; it must be at least 1",
    ]


def test_a_file_that_is_not_toml_is_said_so() -> None:
    (problem,) = problems_of(file="port 9092")
    assert problem.startswith("configuration file: it is not TOML")
    (problem,) = problems_of(file="port 9092", file_name="/etc/smq.toml")
    assert problem.startswith("/etc/smq.toml: it is not TOML")


@pytest.mark.parametrize(
    ("written", "value"),
    [("1048576", MiB), ("1MiB", MiB), ("1 mib", MiB), ("2GiB", 2 * GiB), ("1MB", 1_000_000)],
)
def test_sizes_may_have_units(written: str, value: int) -> None:
    assert config_of(environment={"SMQ_SEAL_BYTES": written}).seal_bytes == value


def test_paths_are_absolute_and_the_current_directory_is_one() -> None:
    config = config_of(command_line={"data.dir": "."})
    assert config.data_dir == Path.cwd()
    assert config.filer_root == str(Path.cwd() / "filer")


@pytest.mark.parametrize("path", ["", "a\0b", "~nobody-of-this-name/data"])
def test_what_is_no_path_is_refused(path: str) -> None:
    (problem,) = problems_of(command_line={"data.dir": path})
    assert problem.startswith("data.dir (command line): ")


def test_shards_must_find_their_ports() -> None:
    (problem,) = problems_of(command_line={"port": 65535, "shards": 2})
    assert "the last port is 65535" in problem
    assert config_of(command_line={"port": 0, "shards": 2}).listen_port(2) == 0
    assert config_of(command_line={"port": 100, "shards": 2}).listen_port(2) == 101


def test_listening_everywhere_needs_an_address_to_advertise() -> None:
    (problem,) = problems_of(command_line={"host": "0.0.0.0"})
    assert "--advertise" in problem
    config = config_of(command_line={"host": "0.0.0.0", "advertise": "myhost"})
    assert config.advertised(1, 9092) == ("myhost", 9092)


@pytest.mark.parametrize(
    ("given", "node_id", "address"),
    [
        ({}, 2, ("127.0.0.1", 555)),
        ({"host": "::1"}, 1, ("::1", 555)),
        ({"advertise": "kafka.example"}, 2, ("kafka.example", 555)),
        ({"advertise": "kafka.example:7000"}, 3, ("kafka.example", 7002)),
        ({"advertise": "[fd00::1]:7000"}, 1, ("fd00::1", 7000)),
    ],
)
def test_clients_are_told_the_advertised_address(
    given: dict[str, str], node_id: int, address: tuple[str, int]
) -> None:
    assert config_of(command_line=given).advertised(node_id, 555) == address


@pytest.mark.parametrize("wrong", ["a:b", "a:70000", "[::1", ":9", "a b", "fd00::1"])
def test_an_address_that_is_none_is_refused(wrong: str) -> None:
    (problem,) = problems_of(command_line={"advertise": wrong})
    assert problem.startswith("advertise: ")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"group.min.session.timeout.ms": 10, "group.max.session.timeout.ms": 9},
            "above group.max",
        ),
        (
            {"message.max.bytes": "2MiB", "socket.request.max.bytes": "1MiB"},
            "does not fit in socket.request.max.bytes",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, Any], words: str) -> None:
    (problem,) = problems_of(command_line=given)
    assert words in problem


def test_contradictions_and_sizes_are_named_beside_values_that_are_wrong() -> None:
    problems = problems_of(
        command_line={
            "durability": "none",
            "port": 65535,
            "message.max.bytes": 999_999_999_999,
            "ring.bytes": "1TiB",
        }
    )
    assert [problem.split(":")[0] for problem in problems] == [
        "durability (command line)",
        "port",
        "message.max.bytes",
        "message.max.bytes",
        "ring.bytes",
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"port": 65535, "shards": "many"},
        {"port": "http", "http.port": 9092},
        {"group.min.session.timeout.ms": "5 min", "group.max.session.timeout.ms": 5},
        {"message.max.bytes": "200MiB", "socket.request.max.bytes": 0, "ring.bytes": "tiny"},
    ],
)
def test_of_a_value_that_is_wrong_nothing_else_is_said(given: dict[str, Any]) -> None:
    assert all("(command line)" in problem for problem in problems_of(command_line=given))


@pytest.mark.parametrize(
    ("shards", "log_count", "ring", "sentence"),
    [
        (1, 1, "1TiB", "1 x 1 TiB, is more than this machine's memory, 24 GiB; lower ring.bytes"),
        (
            2,
            2,
            "16GiB",
            "2 x 16 GiB, is more than this machine's memory, 24 GiB; lower ring.bytes or shards",
        ),
        (
            1,
            7,
            "3584MiB",
            "7 x 3.5 GiB, is more than this machine's memory, 24 GiB; lower ring.bytes",
        ),
    ],
)
def test_rings_that_take_more_than_the_memory_are_refused(
    shards: int, log_count: int, ring: str, sentence: str
) -> None:
    config = config_of(command_line={"shards": shards, "ring.bytes": ring})
    assert config.sized(log_count, 24 * GiB) == [f"ring.bytes: a ring a log, {sentence}"]
    assert isinstance(config.sized(log_count, 2 * log_count * config.ring_bytes), Config)


def test_a_machine_too_small_for_its_smallest_rings_is_served_all_the_same() -> None:
    assert sized(config_of(command_line={"shards": 256}), 256, 512 * MiB).ring_bytes == 4 * MiB


def test_a_ring_is_256_mib_where_there_is_memory() -> None:
    config = sized(config_of(), 3, 64 * GiB)
    assert (config.ring_bytes, config.wal_segment_bytes) == (256 * MiB, 64 * MiB)


@given(
    shards=st.integers(1, 16),
    more_logs=st.integers(0, 16),
    memory_bytes=st.integers(2 * GiB, 1024 * GiB),
)
def test_rings_fit_the_memory_and_segments_divide_them(
    shards: int, more_logs: int, memory_bytes: int
) -> None:
    config = config_of(command_line={"shards": shards})
    config = sized(config, shards + more_logs, memory_bytes)
    assert config.ring_bytes % config.wal_segment_bytes == 0
    assert config.ring_bytes // config.wal_segment_bytes >= 2
    at_least = (shards + more_logs) * 4 * MiB
    assert config.ring_bytes * (shards + more_logs) <= max(at_least, memory_bytes // 16)


def test_sizes_that_do_not_fit_are_refused_all_at_once() -> None:
    given = {"ring.bytes": "9MiB", "wal.segment.bytes": "2MiB", "message.max.bytes": "8MiB"}
    config = config_of(command_line=given | {"wal.bytes.max": "4MiB"})
    problems = config.sized(3, GiB)
    assert isinstance(problems, list)
    assert [problem.split(":")[0] for problem in problems] == [
        "ring.bytes",
        "wal.bytes.max",
        "message.max.bytes",
    ]


def test_the_text_of_a_config_gives_the_same_config() -> None:
    config = sized(config_of(command_line={"data.dir": '/a"b', "port": 0}), 3, GiB)
    assert config_of(file=config.text()) == config
    assert tomllib.loads(config.text())["ring"]["bytes"] == config.ring_bytes


def test_what_was_changed_is_told_apart() -> None:
    changed = config_of(command_line={"port": 9092, "seal.ms": 7}).changed()
    assert changed["seal.ms"] == 7
    assert "port" not in changed


def test_every_setting_is_documented_under_each_of_its_names() -> None:
    table = documentation()
    for setting in SETTINGS.values():
        assert f"| `{setting.name}` |" in table
        assert setting.doc.endswith((".", "7)."))
    wal = SETTINGS["wal.bytes.max"]
    assert (wal.key, wal.option, wal.variable) == (
        "wal_bytes_max",
        "--wal-bytes-max",
        "SMQ_WAL_BYTES_MAX",
    )


@given(st.dictionaries(st.sampled_from([*SETTINGS, "nonsense"]), st.text(), min_size=1))
def test_any_text_gives_a_config_or_sentences(given: dict[str, str]) -> None:
    result = parse(MACHINE, command_line=given)
    assert isinstance(result, Config) or all(": " in sentence for sentence in result)


def test_a_small_machine_still_holds_a_default_message() -> None:
    config = sized(config_of(command_line={"shards": 1}), 1, 64 * MiB)
    assert config.ring_bytes == 4 * MiB
    assert config.message_max_bytes + 4 * KiB <= config.ring_bytes // 2


def test_the_http_port_is_no_shards() -> None:
    given = {"port": 9092, "shards": 2}
    (problem,) = problems_of(command_line={**given, "http.port": 9093})
    assert problem == "http.port: 9093 is the port of a shard"
    for port in (-1, 0, 9091, 9094):
        assert config_of(command_line={**given, "http.port": port}).http_port == port
