"""Why a server's certificate is refused, and what to do: for all of osrdyne that connects by TLS.

Python 3.13 and later verify by all rules of RFC 5280. A CA that earlier versions accept may then be refused.
"""

from __future__ import annotations

import ssl

from osrdyne_protocol.errors import causes

_SERVER = "the server's certificate"
_CA = "the certificate of the CA that signed the server's"
_EITHER = "the server's certificate, or that of its CA,"

_REMAKE_SERVER = "have the server show a new one: docs/howto/tls.md has the commands"
_REMAKE_CA = "make the CA and what it signed again: docs/howto/tls.md has the commands"
_REMAKE = "make them again: docs/howto/tls.md has the commands"

#: What to do about a server or CA that is not known is not here: that depends on what was named.
_UNKNOWN = {
    2: f"the CA that signed {_CA} is not known here",
    7: f"{_SERVER} was not signed by the CA that is named in it",
    18: f"{_SERVER} was signed by no CA, and is not known here",
    19: f"the CA that signed {_SERVER} is not known here",
    20: f"the CA that signed {_SERVER} is not known here",
    21: f"the CA that signed {_SERVER} is not known here",
    27: f"the CA that signed {_SERVER} is not trusted here",
}

#: OpenSSL's code of a failed verification (X509_V_ERR_... of openssl/x509_vfy.h): what is wrong, and what to do.
_FAULTS = {
    9: (f"{_EITHER} is not valid yet", "check this machine's clock"),
    10: (f"{_EITHER} has expired", "renew the server's certificate, or check this machine's clock"),
    22: ("the server shows too long a chain of CAs", "sign its certificate by a CA that is nearer to the root"),
    23: (f"{_EITHER} was revoked", _REMAKE_SERVER),
    24: (f"{_CA} has no public key that can be read", _REMAKE_CA),
    25: (f"{_CA} allows fewer CAs below it (path length of the basic constraints)", _REMAKE_CA),
    26: (f"{_SERVER} has an extended key usage without serverAuth", _REMAKE_SERVER),
    28: (f"{_CA} is not for servers", "name a CA that is"),
    32: (f"{_CA} has a key usage without keyCertSign", _REMAKE_CA),
    34: (f"{_EITHER} has a critical extension that is not known here", "make it again without that extension"),
    41: (f"{_EITHER} has an extension that cannot be read", _REMAKE),
    47: (f"{_CA} does not allow the server's name (name constraints)", "use a name that it allows"),
    48: (f"{_CA} forbids the server's name (name constraints)", "use a name that it allows"),
    62: (
        f"{_SERVER} does not hold the host name of the address",
        "use a host name that the server's certificate holds",
    ),
    64: (f"{_SERVER} does not hold the IP address", "use an address that the server's certificate holds"),
    66: (f"{_SERVER} has a key that is too short", _REMAKE_SERVER),
    67: (f"{_CA} has a key that is too short", _REMAKE_CA),
    68: (f"{_EITHER} was signed with too weak a digest", _REMAKE),
    76: (f"{_EITHER} was signed by an algorithm that is not known here", _REMAKE),
    77: (f"{_EITHER} was signed by another algorithm than its CA's key is for", _REMAKE),
    78: (f"{_EITHER} names two algorithms of its signature", _REMAKE),
    79: (f"{_CA} is not one of a CA (basic constraints without CA:TRUE)", _REMAKE_CA),
    80: (f"{_SERVER} has a path length in its basic constraints, which is for a CA", _REMAKE_SERVER),
    81: (f"{_CA} has a path length, and a key usage without keyCertSign", _REMAKE_CA),
    82: (f"{_SERVER} has a key usage with keyCertSign, which is for a CA", _REMAKE_SERVER),
    83: (f"{_EITHER} names no issuer", _REMAKE),
    84: (f"{_EITHER} has no subject", _REMAKE),
    85: (f"{_SERVER} has no authority key identifier", _REMAKE_SERVER),
    86: (f"{_CA} has no subject key identifier", _REMAKE_CA),
    87: (f"{_SERVER} has an empty subject alternative name", _REMAKE_SERVER),
    88: (f"{_SERVER} has no subject, and its subject alternative name is not critical", _REMAKE_SERVER),
    89: (f"{_CA} has basic constraints that are not critical", _REMAKE_CA),
    90: (f"{_EITHER} has an authority key identifier that is critical", _REMAKE),
    91: (f"{_EITHER} has a subject key identifier that is critical", _REMAKE),
    92: (f"{_CA} has no key usage", _REMAKE_CA),
    93: (f"{_EITHER} has extensions, and is not of version 3", _REMAKE),
    94: (f"{_EITHER} has a key with parameters of its own in place of a named curve", _REMAKE),
}
_OTHER = (f"{_EITHER} was refused", "docs/howto/tls.md says what certificates must have")


def fault(error: BaseException, *, authority: object, setting: str) -> str | None:
    """Return what is wrong with a server's certificate and what to do; None if an error is not, and wraps no, refusal.

    `authority` is the file of the CA as it was named, None if none was; `setting` says how one is named.
    """
    for cause in causes(error):
        # aiohttp derives an error of its own from this class, and keeps that of OpenSSL in it.
        if isinstance(cause, ssl.SSLCertVerificationError) and hasattr(cause, "verify_code"):
            text = described(cause.verify_code, authority=authority, setting=setting)
            return f"{cause.verify_message.rstrip('.')}: {text}"
    return None


def texts(*, authority: object, setting: str) -> dict[str, str]:
    """Return the same without OpenSSL's words, by its code in decimal, for a program that has no package of ours.

    A code that is missing has that of "0".
    """
    return {str(code): described(code, authority=authority, setting=setting) for code in (0, *_UNKNOWN, *_FAULTS)}


def described(code: int, *, authority: object, setting: str) -> str:
    """Return the same for one of OpenSSL's codes."""
    if code in _UNKNOWN:
        if authority is None:
            return f"{_UNKNOWN[code]}; name the file of a private CA by {setting}"
        return f"{_UNKNOWN[code]}; {authority} must hold that CA's certificate, and the server show those in between"
    return "; ".join(_FAULTS.get(code, _OTHER))
