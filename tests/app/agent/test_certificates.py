"""Keys of TLS for gRPC: read again, and given once each."""

from pathlib import Path

import pytest

from smq.app.agent.certificates import GrpcKeys
from smq.app.process.key_stores import NOBODY, STAYS, UnusableKeys
from smq.security.validity import first_end_ms
from tests.app.process.test_key_stores import AUTHORITY, BROKER, OTHER, settings, written


def test_changed_keys_are_given_once(tmp_path: Path) -> None:
    path = written(tmp_path / "key.pem", BROKER.key, BROKER.certificate)
    said: list[str] = []
    keys = GrpcKeys(settings(keystore_location=path), said.append)
    assert keys.are_usable
    assert keys.end_ms == first_end_ms(BROKER.certificate)
    assert keys.credentials() is not None
    assert keys.newer() is None
    written(path, OTHER.key, OTHER.certificate, b"\n")
    keys.look()
    assert keys.newer() is not None
    assert keys.newer() is None
    written(path, b"garbage")
    keys.look()
    assert keys.newer() is None
    assert keys.are_usable
    assert said[-1].endswith(STAYS)


def test_keys_that_cannot_be_used_open_no_port(tmp_path: Path) -> None:
    path = written(tmp_path / "key.pem", OTHER.key, BROKER.certificate)
    with pytest.raises(UnusableKeys):
        GrpcKeys(settings(keystore_location=path), print)
    said: list[str] = []
    keys = GrpcKeys(settings(keystore_location=path), said.append, has_served=True)
    usable = [keys.are_usable]
    assert said[-1].endswith(NOBODY)
    assert keys.end_ms == 0
    written(path, BROKER.key, BROKER.certificate)
    keys.look()
    assert [*usable, keys.are_usable] == [False, True]
    assert keys.credentials() is not None


def test_certificates_of_clients_need_an_authority(tmp_path: Path) -> None:
    path = written(tmp_path / "key.pem", BROKER.key, BROKER.certificate)
    trusted = written(tmp_path / "ca.pem", AUTHORITY.certificate)
    found = settings(keystore_location=path, truststore_location=trusted, client_auth="required")
    assert GrpcKeys(found, print).credentials() is not None
