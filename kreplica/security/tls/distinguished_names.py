"""Distinguished names (RFC 2253) as Java's ``X500Principal.getName()`` writes them, so that Kafka's ACLs match."""

from __future__ import annotations

from cryptography import x509
from cryptography.x509.oid import NameOID

_KEYWORDS = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
"""Attributes that have a name in RFC 2253; Java writes all others as ``OID=#HEX``."""

_ESCAPED = frozenset(',=+<>#;"\\')
_ASN1_TAGS = {"UTF8String": 0x0C, "PrintableString": 0x13, "IA5String": 0x16, "TeletexString": 0x14}


def rfc2253(name: x509.Name) -> str:
    """Return a distinguished name as text, most specific attribute first."""
    return ",".join("+".join(_attribute(each) for each in rdn) for rdn in reversed(name.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    keyword = _KEYWORDS.get(attribute.oid)
    value = attribute.value
    if keyword is not None and isinstance(value, str):
        return f"{keyword}={_escape(value)}"
    data = value.encode() if isinstance(value, str) else value
    tag = attribute._type.value
    return f"{attribute.oid.dotted_string}=#{bytes([tag]).hex()}{_der_length(len(data)).hex()}{data.hex()}"


def _escape(value: str) -> str:
    text = "".join(f"\\{character}" if character in _ESCAPED else character for character in value)
    leading = len(text) - len(text.lstrip(" "))
    if leading == len(text):
        return "\\ " * leading
    trailing = len(text) - len(text.rstrip(" "))
    return "\\ " * leading + text[leading : len(text) - trailing] + "\\ " * trailing


def _der_length(size: int) -> bytes:
    if size < 128:
        return bytes([size])
    encoded = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(encoded)]) + encoded
