"""What an error of an object store means, and what to do, as one line. Pure, but for the settings in the environment.

The libraries say what the server said: its code is in angle brackets, in a text of many lines and colours.
"""

from __future__ import annotations

import os
import re

_CODE = re.compile(r"<Code>(\w+)</Code>")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m|\u21b3")
#: Letters of an error without a known meaning that are shown.
_LONGEST = 300

_NO_KEY = (
    "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where the machine or the pod "
    "has a role"
)
_WRONG_KEY = "its credentials are not accepted: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
#: The server's code -> what it means here.
_CODES = {
    "NoSuchBucket": "there is no such bucket: make it, or give another address",
    "AccessDenied": "these credentials may not do that: they need to list, read, write and delete there",
    "AllAccessDisabled": "these credentials may not do that: they need to list, read, write and delete there",
    "InvalidAccessKeyId": _WRONG_KEY,
    "SignatureDoesNotMatch": _WRONG_KEY,
    "InvalidToken": _WRONG_KEY,
    "ExpiredToken": "its credentials have expired: get new ones",
    # Of the Versity gateway.
    "XAdminUserNotFound": _WRONG_KEY,
    "RequestTimeTooSkewed": "the clocks of this machine and of the store differ: set this one",
    "PermanentRedirect": "the bucket is in another region: set AWS_REGION",
    "AuthorizationHeaderMalformed": "the bucket is in another region: set AWS_REGION",
    "NotImplemented": "the server lacks what is needed, as conditional writes (If-None-Match): use another",
}


def endpoint() -> str | None:
    """Return the address of the store that the environment names; without, it is that of Amazon."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def meaning(error: BaseException) -> str:
    """Return in one line what an error of deltalake, obstore or Arrow says of the store."""
    text = str(error)
    if (code := _CODE.search(text)) and code[1] in _CODES:
        return _CODES[code[1]]
    # Where nothing else has credentials, the machine's cloud is asked for some.
    if "169.254.169.254" in text or "169.254.170.2" in text:
        return _NO_KEY
    if "error sending request" in text or "(Connect)" in text:
        at = endpoint() or "Amazon S3"
        return f"{at} cannot be reached: check AWS_ENDPOINT_URL and the network"
    if "403 Forbidden" in text or "lacked the necessary privileges" in text:
        return _CODES["AccessDenied"]
    words = " ".join(_COLOUR.sub(" ", text).split())[:_LONGEST]
    return f"{code[1]}: {words}" if code else words
