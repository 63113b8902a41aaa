"""Users and rules of a data directory that no broker serves, for those who own it."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from shm.peer import ROOT
from smq.cli.client import refusal
from smq.model.config import Config
from smq.model.errors import BrokerError, StoreError
from smq.model.printable import say_error
from smq.security.acls import AclBinding
from smq.security.credentials import SaltedPassword, ScramCredential, ScramMechanism, credential_of
from smq.security.published import UserCredential

if TYPE_CHECKING:
    from smq.coordinator.access import AccessControl
    from smq.security.audit import Event


class Unserved:
    """What the directory has. Changes are durable, and told, when the block of `unserved` ends."""

    def __init__(self, access: "AccessControl", verb: str) -> None:
        self._access = access
        self._verb = verb
        self.events: list[Event] = []

    def credentials_of(self, user: str) -> dict[ScramMechanism, ScramCredential]:
        """A user's credentials."""
        return self._access.credentials().get(user, {})

    def give(self, user: str, passwords: list[SaltedPassword]) -> None:
        """Add a user, or give one other passwords. Raises BrokerError if there is no room."""
        for mechanism, iterations, salt, salted_password in passwords:
            keys = credential_of(mechanism, salted_password, salt, iterations)
            self._access.put_credential(UserCredential(user, mechanism, keys))
        self._note("ALTER", "USER", user)

    def add_rule(self, rule: AclBinding) -> bool:
        """Whether the rule was not there. Raises BrokerError if there is no room."""
        before = self._access.changes
        self._access.create([rule])
        if self._access.changes == before:
            return False
        (kind, name, how), (principal, host, operation, permission) = rule
        detail = f"{permission.name} {principal} {operation.name} from {host}, {how.name}"
        self._note("CREATE_ACL", kind.name, name, detail)
        return True

    def _note(self, operation: str, kind: str, name: str, detail: str = "") -> None:
        from smq.app.process.unix_users import principal_of_user  # noqa: PLC0415  (as below)
        from smq.security.audit import Event  # noqa: PLC0415  (as below)

        self.events.append(
            Event(
                "act", str(principal_of_user(os.getuid())), api=self._verb, operation=operation,
                resource_type=kind, resource=name, detail=detail,
            )
        )  # fmt: skip


@contextmanager
def unserved(data_dir: Path, verb: str) -> Iterator[Unserved]:
    """Open a directory that nobody serves, or a new one. Raises SystemExit with a sentence, also if
    the block raises BrokerError; then nothing is changed."""
    from smq.app.process.refusal import refuse_wire_only  # noqa: PLC0415  (seldom needed)
    from smq.app.supervisor.datadir import DataDirectory  # noqa: PLC0415  (NumPy takes its time.)
    from smq.coordinator.access import AccessControl  # noqa: PLC0415  (as above)
    from smq.store.store import FILE_NAME, Store  # noqa: PLC0415  (as above)

    refuse_wire_only()
    _check_owner(data_dir)
    os.umask(0o077)
    directory = DataDirectory(data_dir.absolute())
    try:
        with closing(Store.open(data_dir / FILE_NAME)) as store:
            opened = Unserved(AccessControl(store, Config()), verb)
            yield opened
            if opened.events:  # Told first, as a broker does.
                _tell(data_dir, opened.events)
                store.commit()
    except StoreError as reason:
        raise refusal(str(reason)) from reason
    except BrokerError as reason:
        raise refusal(reason.message or reason.code.name) from reason
    finally:
        directory.close()


def _check_owner(data_dir: Path) -> None:
    """Raises SystemExit with a sentence if a directory is another user's, or not to be seen."""
    from smq.app.supervisor.datadir import unusable  # noqa: PLC0415  (as above)

    try:
        owner = data_dir.stat().st_uid
    except FileNotFoundError:
        return
    except PermissionError as reason:
        why = f"{data_dir} lies in a directory that is closed to this user"
        raise refusal(f"{why}; run this as the owner of the data, as the broker runs") from reason
    except OSError as reason:
        raise refusal(unusable(data_dir, reason)) from reason
    # Root owns a volume, which others may write to: smq.app.supervisor.modes.
    if owner not in {os.geteuid(), ROOT}:
        raise refusal(f"{data_dir} is another user's; run this as its owner, as the broker runs")


def _tell(data_dir: Path, events: "list[Event]") -> None:
    """Tell the audit log, with or without one: the broker's settings are not known here."""
    from smq.app.process.audit_files import DIRECTORY, AuditFiles, FileLimits  # noqa: PLC0415  (as above)
    from smq.app.process.clock import now  # noqa: PLC0415  (as above)
    from smq.security.audit import line_of  # noqa: PLC0415  (as above)

    config = Config()
    limits = FileLimits(config.audit_log_bytes, config.audit_log_files)
    files = AuditFiles(data_dir.absolute() / DIRECTORY, limits, say_error)
    files.tell_acts([line_of(each, now().wall_ms) for each in events])
    files.close()
