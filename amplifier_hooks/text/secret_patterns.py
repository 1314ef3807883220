r"""The shapes of secrets, one row each: enough of it to know that one is there, and an expression that finds all of it.

`least` is asked by an engine that takes linear time for anything and cannot look around. `whole` is for Python's, which
can, and is written so that it reads nothing twice: where only a beginning was there it passes over that. It begins with
a letter or a set of letters, because then Python skips quickly to where one stands; that is why every name of a
password has a row of its own.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

CODE: Final = "code"
"""The group of `whole` that looks like a secret and is none."""


class SecretShape(NamedTuple):
    """One kind of secret. A group without a name in `whole` is the secret; a match without groups is passed over."""

    kind: str
    least: str
    whole: str


def _any_case(text: str) -> str:
    """These letters in either case; a flag that says the same would make Python's search slow."""
    return "".join(f"[{one.upper()}{one.lower()}]" if one.isalpha() else re.escape(one) for one in text)


WORD: Final = r"[A-Za-z0-9_\-]"
VALUE: Final = r"[A-Za-z0-9._~+/=\-]"
ANYTHING: Final = r"[A-Za-z0-9._~+/=!@\#$%^&*\-]"
IN_QUOTES: Final = r"[A-Za-z0-9._~+/=!@\#$%^&*()\[\]?,;:|\-]"
"""What a password may hold besides where quotes tell its end; blanks end it."""
CRUMB: Final = r"[!\#-&(-:<-~]"
"""What the value of a cookie is made of."""

QUOTE: Final = r"""(?:["']|\\{1,7}["']|%22)"""
"""Also as it stands in JSON within JSON, and in an address."""
BLANKS: Final = r"(?:[\x20\t]+|\s)?"
SIGN: Final = r"(?::=|[:=]>?|%3[AaDd])"
BESIDE: Final = rf",?\s+{QUOTE}?[Vv]alue{QUOTE}?"
"""As in `name: DB_PASSWORD, value: …`."""
ASSIGNED: Final = rf"(?:{SIGN}|(?:{QUOTE}?{BESIDE}|{QUOTE})?{BLANKS}{SIGN}{BLANKS})"
"""The usual case stands first: nearly all the time goes into it."""

CALL: Final = r"\$?[A-Za-z_][A-Za-z0-9_.]*+[(\[]"
MEMBER: Final = (
    r"(?:self|this|cls|req|res|request|response|config|settings|args|options|props|params|env|process|os|ctx|context"
    r"|kwargs|session|state|event|payload)\.[A-Za-z_.]++"
)
VARIABLE: Final = r"\$[A-Z_][A-Z0-9_]*+"
TYPE: Final = r"(?:[Ss]tring|SecretStr|Optional|undefined|boolean|number|required|optional|hidden|\*{6,}+)"
"""Types, what forms say of a field, and a mask."""

NAMES: Final = (
    _any_case("passw") + f"(?:{_any_case('or')})?" + _any_case("d"),
    *map(_any_case, ("secret", "token", "credential")),
    *(f"{_any_case(word)}[_\\-]?{_any_case('key')}" for word in ("api", "access", "private", "account", "signing")),
)
"""How passwords are called; more of the name may stand before and after it."""


def _password(name: str, begins: str = "", holds: str = IN_QUOTES) -> SecretShape:
    """What is called a password: assigned to the name, or between its tags.

    `begins` is how its value does, and `holds` what may be in it where quotes tell its end.
    """
    called, bare, quoted = f"{name}{WORD}*", begins + ANYTHING, (begins or ANYTHING) + holds
    code = f"(?P<{CODE}>{CALL}|(?:{MEMBER}|{VARIABLE}|{TYPE}|{QUOTE}(?:{VARIABLE}|{TYPE}))(?!{ANYTHING}))"
    return SecretShape(
        "password",
        f"{called}(?:{ASSIGNED}(?:{bare}{{6}}|{QUOTE}{quoted}{{5}})|>{quoted}{{5}}{holds}*</)",
        f"{called}+(?:{ASSIGNED}(?:{code}|({bare}{{6,}}+)|{QUOTE}({quoted}{{5,}}+))|>({quoted}{{5,}}+)(?=</))?",
    )


ISSUERS: Final = (
    "gh[pousr]_", "github_pat_", "glpat-", "npm_", "hf_", "pypi-", "dop_v1_", "shpat_", "whsec_", "sk-", "rk_live_",
    "sk_live_", "rk_test_", "sk_test_", "xox[abeoprs]-", "xapp-", "AIza", r"ya29\.", r"SG\.",
)  # fmt: skip
"""What tokens begin with, by who issues them."""
ISSUED: Final = "|".join(f"{one[0]}(?<=\\b{one[0]}){one[1:]}" for one in ISSUERS)
"""The same, each beginning with its letter; that it begins a word is looked at after that."""

OPTION: Final = rf"--(?:[a-z]+-)*(?:password|passwd|passphrase|secret|token|api-?key|secret-key)\x20{QUOTE}?"
"""Before a password that is an option of a command; that of `--password=…` is assigned."""
HEADER: Final = rf"{_any_case('authorization')}{QUOTE}?{BLANKS}(?:{SIGN}|,){BLANKS}{QUOTE}?"
"""Also as the first of two in a list."""
COOKIES: Final = rf"{_any_case('cookie')}{QUOTE}?:\x20?{QUOTE}?"
ENCODED: Final = r"LS0tLS1CRUdJTiB(?:QUklWQVRF|SU0EgUFJJVkFUR|FQyBQUklWQVRF|EU0EgUFJJVkFUR|FTkNSWVBURUQ|PUEVOU1NI)"
"""`-----BEGIN …PRIVATE` and its like in base64."""
BEGIN: Final = r"-----BEGIN\x20[A-Z\x20]*PRIVATE\x20KEY"
END: Final = r"-----END\x20[A-Z\x20]*PRIVATE\x20KEY(?:\x20BLOCK)?-----"

PRIVATE_KEY: Final = SecretShape("private key", BEGIN, rf"({BEGIN}(?s:.*?{END}|.*))")
"""The only one that is longer than a line."""

SHAPES: Final = (
    SecretShape("token", rf"\b(?:{'|'.join(ISSUERS)}){WORD}{{12}}", rf"((?:{ISSUED}){WORD}{{12,}}+)"),
    SecretShape("access key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}", r"\b((?:AKIA|ASIA)[A-Z0-9]{16,}+)"),
    SecretShape(
        "JSON web token",
        rf"\beyJ{WORD}{{8}}{WORD}*\.{WORD}{{8}}",
        rf"\b(eyJ{WORD}{{8,}}+\.{WORD}{{8,}}+(?:\.{WORD}*+)?)|\beyJ{WORD}*+",
    ),
    SecretShape(
        "bearer token",
        rf"{_any_case('bearer')}\s+{VALUE}{{16}}",
        rf"{_any_case('bearer')}\s++({VALUE}{{16,}}+)",
    ),
    SecretShape(
        "authorization",
        rf"{HEADER}(?:[A-Za-z\-]+\s{VALUE}{{8}}|{VALUE}{{20}})",
        rf"{HEADER}([A-Za-z\-]++\s{VALUE}{{8,}}+|{VALUE}{{20,}}+)",
    ),
    *map(_password, NAMES),
    _password(_any_case("passphrase"), holds=IN_QUOTES.replace("[", r"[\x20", 1)),
    _password(_any_case("pwd"), r"[A-Za-z0-9_+=!@\#$%^&*]"),
    SecretShape("password", rf"{OPTION}[A-Za-z0-9]{ANYTHING}{{5}}", rf"{OPTION}([A-Za-z0-9]{ANYTHING}{{5,}}+)"),
    SecretShape("cookie", rf"{COOKIES}{WORD}+={CRUMB}{{8}}", rf"{COOKIES}((?:{WORD}++={CRUMB}++(?:;\x20)?)++)"),
    SecretShape(
        "password in a URL",
        r"://[!-.0-9;-?A-~]*:[!-.0-?A-~]+@",
        r"://[!-.0-9;-?A-~]*+:([!-.0-?A-~]++)(?=@)",
    ),
    SecretShape("password in a URL", r"://[A-Za-z0-9_\-]{20}[A-Za-z0-9_\-]*@", r"://([A-Za-z0-9_\-]{20,}+)(?=@)"),
    SecretShape("private key", ENCODED, rf"({ENCODED}[A-Za-z0-9+/=]*+)"),
)
