"""Warnings before certificates expire, in virtual time."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from OpenSSL import SSL
from twisted.internet.defer import Deferred, execute
from twisted.internet.task import Clock

from kreplica.runtime import Runtime
from kreplica.runtime.os_disk import OsDisk
from kreplica.security.tls.development_ca import create_certificate, open_authority
from kreplica.security.tls.listener import ListenerTls
from kreplica.security.tls.options import TlsOptions
from kreplica.security.tls.reloading import CHECK_INTERVAL_S
from kreplica.service.broker.certificate_watch import INTERVAL_S, CertificateWatch

DAY_S = 86_400


class InlineOffload:
    """An ``Offload`` that runs functions synchronously."""

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Deferred[Any]:
        return execute(function, *args, **kwargs)

    def stop(self) -> None:
        pass


class Scene:
    """A listener whose certificate is valid for 40 days, and a broker's check that warns 30 days before expiry."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        start_ms = time.time() * 1000
        runtime = Runtime(
            self.clock, OsDisk(), InlineOffload(), Random(1), lambda: round(start_ms + self.clock.seconds() * 1000)
        )
        self.directory = directory
        authority = open_authority(directory, 400)
        self.path = create_certificate(directory, authority, "broker", ["127.0.0.1"], 40)
        options = TlsOptions(keystore_type="PEM", keystore_location=str(self.path))
        self.tls = ListenerTls(options, self.clock.seconds, runtime.offload.run)
        self.watch = CertificateWatch(runtime, 30)
        self.watch.add("SSL", self.tls)

    def pass_days(self, days: float) -> None:
        for _ in range(round(days * DAY_S / INTERVAL_S)):
            self.clock.advance(INTERVAL_S)

    def renew(self, days: int) -> None:
        self.path.unlink()
        create_certificate(self.directory, open_authority(self.directory, 400), "broker", ["127.0.0.1"], days)


def warnings(logged: list[str]) -> list[str]:
    return [text.partition(" Replace it: ")[0] for text in logged if "The certificate" in text]


def test_one_warning_per_day_below_the_threshold(tmp_path: Path, logged: list[str]) -> None:
    """Below the threshold, there is one log line per day, with the number of days; after the file is replaced, none."""
    scene = Scene(tmp_path)
    scene.watch.start()
    (expiry,) = scene.watch.expiries
    assert (expiry.listener, expiry.subject) == ("SSL", "CN=broker")
    assert expiry.days == pytest.approx(40, abs=0.01)
    scene.pass_days(9.9)
    assert not scene.watch.expiring
    assert warnings(logged) == []
    scene.pass_days(3.2)
    name = "The certificate CN=broker of the listener SSL"
    assert warnings(logged) == [f"{name} expires in {days} days." for days in (29, 28, 27, 26)]
    assert logged[-1].endswith(f"Replace it: {scene.path} ")
    scene.pass_days(27.5)
    (expired,) = scene.watch.expiring
    assert expired.days < 0
    assert f"{name} expires in 1 day." in warnings(logged)
    assert warnings(logged)[-1] == f"{name} expired less than a day ago."
    assert len(warnings(logged)) == 31
    scene.renew(100)
    scene.pass_days(2)
    assert not scene.watch.expiring
    assert len(warnings(logged)) == 31
    scene.watch.stop()
    assert scene.clock.getDelayedCalls() == []


def test_issuer_that_expires_first(tmp_path: Path) -> None:
    """The warning is about the first certificate in the chain to expire: from then on, clients reject connections."""
    authority = open_authority(tmp_path / "short", 5)
    scene = Scene(tmp_path / "long")
    path = create_certificate(tmp_path / "short", authority, "broker", ["127.0.0.1"], 300)
    scene.tls.change(replace(TlsOptions(keystore_type="PEM"), keystore_location=str(path)))
    (expiry,) = scene.watch.expiring
    assert expiry.subject.startswith("CN=kreplica development CA")
    assert expiry.days == pytest.approx(5, abs=0.01)


def test_replaced_certificates_are_freed(tmp_path: Path) -> None:
    """Neither replaced files nor changed settings keep the contexts of previous certificates in memory."""
    scene = Scene(tmp_path)
    other = create_certificate(tmp_path, open_authority(tmp_path, 400), "other", ["127.0.0.1"], 40)

    def contexts() -> int:
        gc.collect()
        return sum(isinstance(each, SSL.Context) for each in gc.get_objects())

    scene.tls.serverConnectionForTLS(None)
    before = contexts()
    for number in range(40):
        scene.renew(30)
        scene.clock.advance(CHECK_INTERVAL_S)
        scene.tls.serverConnectionForTLS(None)
        path = other if number % 2 else scene.path
        scene.tls.change(TlsOptions(keystore_type="PEM", keystore_location=str(path)))
        scene.tls.serverConnectionForTLS(None)
    assert contexts() <= before + 1


def test_no_timer_without_tls(tmp_path: Path) -> None:
    """A broker without TLS has no timer."""
    clock = Clock()
    watch = CertificateWatch(Runtime(clock, OsDisk(), InlineOffload(), Random(1), lambda: 0), 30)
    watch.start()
    assert clock.getDelayedCalls() == []
    assert watch.expiries == watch.expiring == []
    watch.stop()
