"""Keys and certificates from PEM and PKCS12, and the errors of invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from kreplica.errors import SettingsError
from kreplica.security.tls.contexts import load_server_tls, openssl_name
from kreplica.security.tls.development_ca import create_certificate, open_authority
from kreplica.security.tls.distinguished_names import rfc2253
from kreplica.security.tls.options import TlsOptions
from kreplica.security.tls.principal_rules import parse_rules, user_of
from kreplica.security.tls.stores import load_key, load_trusted

SECRET = "a secret password"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an authority's certificates, in PEM and PKCS12."""
    made = tmp_path_factory.mktemp("certificates")
    authority = open_authority(made, 10)
    path = create_certificate(made, authority, "broker", ["localhost", "127.0.0.1"], 10)
    key = load_pem_private_key(path.read_bytes(), None)
    chain = x509.load_pem_x509_certificates(path.read_bytes())
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(SECRET.encode()))
    (made / "encrypted.pem").write_bytes(encrypted + b"".join(each.public_bytes(Encoding.PEM) for each in chain))
    encryption = BestAvailableEncryption(SECRET.encode())
    # The order of certificates in a PKCS12 file is not significant.
    stored = pkcs12.serialize_key_and_certificates(b"broker", key, chain[0], [chain[1]], encryption)
    (made / "broker.p12").write_bytes(stored)
    trusted = pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(chain[1], b"ca")], encryption)
    (made / "trusted.p12").write_bytes(trusted)
    (made / "broker.jks").write_bytes(b"\xfe\xed\xfe\xed and more")
    (made / "other.pem").write_bytes(create_certificate(made, authority, "another", [], 10).read_bytes())
    return made


def pem(path: Path, **more: str) -> TlsOptions:
    return TlsOptions(keystore_type="PEM", keystore_location=str(path), **more)


def test_pem_file(directory: Path) -> None:
    entry = load_key(pem(directory / "broker.pem"))
    assert entry is not None
    own, authority = [each.subject.rfc4514_string() for each in entry.chain]
    assert own == "CN=broker"
    assert authority.startswith("CN=kreplica development CA ")
    assert load_server_tls(pem(directory / "broker.pem", client_auth="required")) is not None


def test_encrypted_pem(directory: Path) -> None:
    """A missing, wrong or unnecessary password is reported; the error does not contain it."""
    assert load_key(pem(directory / "encrypted.pem", key_password=SECRET)) is not None
    for path, password, message in (
        ("encrypted.pem", None, "is encrypted: set ssl.key.password"),
        ("encrypted.pem", "wrong one", "check ssl.key.password"),
        ("broker.pem", SECRET, "is not encrypted: remove ssl.key.password"),
    ):
        options = TlsOptions(keystore_type="PEM", keystore_location=str(directory / path), key_password=password)
        with pytest.raises(SettingsError) as caught:
            load_key(options)
        assert message in str(caught.value)
        assert path in str(caught.value)
        assert (password or SECRET) not in str(caught.value)


def test_pem_text(directory: Path) -> None:
    """The settings contain the key and the certificates themselves (KIP-651)."""
    text = (directory / "broker.pem").read_text()
    inline = TlsOptions(keystore_type="PEM", keystore_key=text, keystore_certificate_chain=text)
    assert load_key(inline) is not None
    assert text not in repr(inline)
    with pytest.raises(SettingsError, match="both must be set"):
        load_key(TlsOptions(keystore_type="PEM", keystore_key=text))
    with pytest.raises(SettingsError, match=r"set ssl\.keystore\.type=PEM"):
        load_key(TlsOptions(keystore_key=text, keystore_certificate_chain=text))
    authority = (directory / "ca.pem").read_text()
    trusted = load_trusted(TlsOptions(truststore_type="PEM", truststore_certificates=authority))
    assert trusted is not None
    assert len(trusted) == 1


def test_key_of_another_certificate(directory: Path) -> None:
    text = (directory / "broker.pem").read_text()
    other = (directory / "other.pem").read_text()
    with pytest.raises(SettingsError, match="does not belong to the first certificate"):
        load_key(TlsOptions(keystore_type="PEM", keystore_key=text, keystore_certificate_chain=other))


def test_pkcs12(directory: Path) -> None:
    """With type JKS, a PKCS12 file is also read, as in Java."""
    for store_type in ("PKCS12", "JKS"):
        options = TlsOptions(
            keystore_type=store_type,
            keystore_location=str(directory / "broker.p12"),
            keystore_password=SECRET,
            truststore_type=store_type,
            truststore_location=str(directory / "trusted.p12"),
            truststore_password=SECRET,
        )
        entry, trusted = load_key(options), load_trusted(options)
        assert entry is not None
        assert trusted is not None
        assert [len(entry.chain), len(trusted)] == [2, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keystore_location": "{}/broker.jks"}, "keytool -importkeystore -srckeystore {}/broker.jks"),
        ({"keystore_location": "{}/broker.pem"}, "PEM format: set the store's type to PEM"),
        ({"keystore_location": "{}/broker.p12", "keystore_password": "wrong one"}, "check ssl.keystore.password"),
        ({"keystore_location": "{}/none.p12"}, "cannot be read: No such file"),
        ({"keystore_location": "{}/trusted.p12", "keystore_password": SECRET}, "no private key with a certificate"),
        ({"keystore_type": "PEM", "keystore_location": "{}/ca.pem"}, "there is no PEM private key"),
        ({"keystore_type": "ZIP", "keystore_location": "{}/ca.pem"}, "the types are PEM, PKCS12 and JKS"),
        ({}, "ssl.keystore.location is not set"),
        ({"enabled_protocols": ("SSLv3",)}, "the protocols are TLSv1.2, TLSv1.3"),
        ({"cipher_suites": ("NONSENSE",)}, "OpenSSL supports none of these suites"),
    ],
)
def test_invalid_options(directory: Path, options: dict[str, object], message: str) -> None:
    """Errors contain the setting, the file and the remedy, but no password."""
    given = {name: value.format(directory) if isinstance(value, str) else value for name, value in options.items()}
    if "keystore_location" not in given and given:
        given.update(keystore_type="PEM", keystore_location=str(directory / "broker.pem"))
    with pytest.raises(SettingsError) as caught:
        load_server_tls(TlsOptions(**given, prefix=""))  # type: ignore[arg-type]
    assert message.format(directory) in str(caught.value)
    assert "wrong one" not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_cipher_suites() -> None:
    """Java's names are the IANA names."""
    assert openssl_name("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384") == "ECDHE-RSA-AES256-GCM-SHA384"
    assert openssl_name("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256") == "ECDHE-ECDSA-CHACHA20-POLY1305"
    assert openssl_name("TLS_RSA_WITH_AES_128_CBC_SHA") == "AES128-SHA"
    assert openssl_name("ECDHE-RSA-AES128-SHA256") == "ECDHE-RSA-AES128-SHA256"


def test_distinguished_names() -> None:
    """Names are formatted as by Java's ``X500Principal.getName()``: reversed, with other attributes in hexadecimal."""
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Ada, Bert + Co"),
            x509.NameAttribute(NameOID.COMMON_NAME, " alice "),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.c"),
        ]
    )
    assert rfc2253(name) == "1.2.840.113549.1.9.1=#160561" + "40622e63" + ",CN=\\ alice\\ ,O=Ada\\, Bert \\+ Co,C=DE"


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=alice,O=a", "CN=alice,O=a"),
        ("RULE:^CN=(.*?),O=(.*?)$/$1@$2/", "CN=alice,O=a", "alice@a"),
        ("RULE:^CN=(.*?),.*$/$1/U", "CN=alice,O=a", "ALICE"),
        ("RULE:^OU=.*$/x/, RULE:^CN=(.*?),.*$/$1/L", "CN=Alice,O=a", "alice"),
        ("RULE:^CN=(.*?)\\/b$/$1/,DEFAULT", "CN=a/b", "a"),
        ("RULE:^OU=.*$/x/", "CN=alice", None),
        ("", "CN=alice", "CN=alice"),
    ],
)
def test_principal_rules(rules: str, name: str, user: str | None) -> None:
    assert user_of(parse_rules(rules), name) == user


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("DEFAULT,RULE:x", "column 9: 'RULE:x' is not DEFAULT or RULE:pattern/replacement/"),
        ("RULE:(/x/", "column 1: '(' is not a regular expression"),
        ("RULE:CN=(.*)/$2/", "column 1: $2 is not a group of 'CN=(.*)'"),
        ("default", "column 1: 'default' is not DEFAULT"),
    ],
)
def test_invalid_principal_rules(rules: str, message: str) -> None:
    with pytest.raises(ValueError, match="column") as caught:
        parse_rules(rules)
    assert message in str(caught.value)


def test_development_certificates_are_private(directory: Path) -> None:
    for path in ("ca.key", "broker.pem"):
        assert (directory / path).stat().st_mode & 0o777 == 0o600
    with pytest.raises(SettingsError, match="File exists"):
        create_certificate(directory, open_authority(directory, 1), "broker", [], 1)
