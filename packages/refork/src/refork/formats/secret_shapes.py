"""What secrets look like: keys of known services by their form, others by what stands beside them.

Source: the prefixes that the services document for their own tokens; where a service documents none (a key of
32 hexadecimal digits), only a name beside it tells a secret from a digest, and that name is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

from refork.formats.detected import by_form


@final
@dataclass(frozen=True, slots=True)
class SecretKind:
    """One kind of secret. ``hints``: one of them stands in every text that has one; others are not searched.

    The group ``secret`` of the pattern is what is taken out; without one, the whole match.
    """

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    #: Whether the value must look like a secret too, and not like a placeholder or code.
    judged: bool = False


_W = r"[A-Za-z0-9_-]"


def _key(name: str, hints: str, body: str) -> SecretKind:
    """A key that its form alone gives away."""
    return SecretKind(name, tuple(hints.split()), re.compile(rf"(?<![A-Za-z0-9_-]){body}(?![A-Za-z0-9])"))


def _beside(name: str, hints: str, pattern: str, judged: bool = True) -> SecretKind:
    """A secret that is one for what stands beside it."""
    return SecretKind(name, tuple(hints.split()), re.compile(pattern, re.IGNORECASE | re.MULTILINE), judged)


#: Keys of known services; hints as they are written.
KEYS: Final = (
    _key("aws-access-key-id", "AKIA ASIA ABIA ACCA", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}"),
    _key("google-api-key", "AIza", rf"AIza{_W}{{35}}"),
    _key("google-oauth-token", "ya29.", r"ya29\.[\w-]{20,}"),
    _key("google-client-secret", "GOCSPX-", rf"GOCSPX-{_W}{{20,}}"),
    _key("azure-client-secret", "8Q~", r"[\w~.-]{3}8Q~[\w~.-]{31,34}"),
    _key("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{36,}"),
    _key("github-token", "github_pat_", r"github_pat_\w{22,}"),
    _key(
        "gitlab-token",
        "glpat- gldt- glrt- glft- glcbt- glptt- glsoat- glimt- gloas- glagent-",
        rf"gl(?:pat|dt|rt|ft|cbt|ptt|soat|imt|oas|agent)-{_W}{{20,}}",
    ),
    _key("bitbucket-token", "ATBB", r"ATBB[A-Za-z0-9]{24,}"),
    _key("atlassian-token", "ATATT3", r"ATATT3[\w=-]{50,}"),
    _key("anthropic-key", "sk-ant-", rf"sk-ant-{_W}{{24,}}"),
    _key("openrouter-key", "sk-or-", rf"sk-or-{_W}{{24,}}"),
    _key("langfuse-key", "sk-lf-", r"sk-lf-[0-9a-f-]{36}"),
    _key("openai-key", "sk-", rf"sk-(?:proj|svcacct|admin|None)-{_W}{{20,}}"),
    _key("openai-key", "sk-", r"sk-(?=[A-Za-z]*\d)(?=\w*[A-Z])[A-Za-z0-9]{32,}"),
    _key("api-key", "sk-", r"sk-[0-9a-f]{32,64}"),
    _key("huggingface-token", "hf_", r"hf_[A-Za-z0-9]{30,}"),
    _key("huggingface-token", "api_org_", r"api_org_[A-Za-z0-9]{30,}"),
    _key("groq-key", "gsk_", r"gsk_[A-Za-z0-9]{40,}"),
    _key("xai-key", "xai-", r"xai-[A-Za-z0-9]{40,}"),
    _key("perplexity-key", "pplx-", r"pplx-[A-Za-z0-9]{40,}"),
    _key("replicate-token", "r8_", r"r8_[A-Za-z0-9]{36,}"),
    _key("nvidia-key", "nvapi-", rf"nvapi-{_W}{{50,}}"),
    _key("together-key", "tgp_v1_", rf"tgp_v1_{_W}{{40,}}"),
    _key("langsmith-key", "lsv2_", r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    _key("slack-token", "xoxb- xoxp- xoxa- xoxr- xoxs- xoxe-", rf"xox[abeprs]-{_W}{{10,}}"),
    _key("slack-app-token", "xapp-", rf"xapp-\d-{_W}{{20,}}"),
    _key("slack-webhook", "hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows)/[\w/]{30,}"),
    _key("discord-webhook", "/api/webhooks/", rf"discord(?:app)?\.com/api/webhooks/\d+/{_W}{{40,}}"),
    # Begun with a class of letters, not with a look behind: every text with a dot is searched.
    SecretKind("discord-token", (".",), re.compile(rf"[MNO][A-Za-z\d]{{23,25}}\.{_W}{{6}}\.{_W}{{27,}}")),
    _key("telegram-token", ":AA", rf"\d{{8,10}}:AA{_W}{{32,33}}"),
    _key("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{20,}"),
    _key("stripe-webhook-secret", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,}"),
    _key("twilio-key", "SK", r"SK[0-9a-f]{32}"),
    _key("sendgrid-key", "SG.", rf"SG\.{_W}{{20,24}}\.{_W}{{39,50}}"),
    _key("mailgun-key", "key-", r"key-[0-9a-f]{32}"),
    _key("mailchimp-key", "-us", r"[0-9a-f]{32}-us\d{1,2}"),
    _key("brevo-key", "xkeysib-", r"xkeysib-[0-9a-f]{64}-\w{16}"),
    _key("npm-token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _key("pypi-token", "pypi-", rf"pypi-A{_W}{{50,}}"),
    _key("rubygems-key", "rubygems_", r"rubygems_[0-9a-f]{48}"),
    _key("docker-token", "dckr_", rf"dckr_(?:pat|oat)_{_W}{{20,}}"),
    _key("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[0-9a-f]{64}"),
    _key("heroku-key", "HRKU-", rf"HRKU-{_W}{{36,}}"),
    _key("shopify-token", "shpat_ shpss_ shpca_ shppa_", r"shp(?:at|ss|ca|pa)_[0-9a-fA-F]{32}"),
    _key("square-token", "sq0atp- sq0csp-", rf"sq0(?:atp|csp)-{_W}{{22,}}"),
    _key("databricks-token", "dapi", r"dapi[0-9a-f]{32}(?:-\d)?"),
    _key("linear-key", "lin_api_", r"lin_api_[A-Za-z0-9]{40}"),
    _key("notion-token", "ntn_ secret_", r"(?:ntn_[A-Za-z0-9]{40,}|secret_(?=[A-Za-z]*\d)[A-Za-z0-9]{43})"),
    _key("airtable-token", "pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    _key("figma-token", "figd_", rf"figd_{_W}{{40,}}"),
    _key("postman-key", "PMAK-", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    _key("newrelic-key", "NRAK-", r"NRAK-[A-Z0-9]{27}"),
    _key("grafana-token", "glc_ glsa_", r"gl(?:c_[A-Za-z0-9+/=]{32,}|sa_[A-Za-z0-9]{32}_[0-9a-f]{8})"),
    _key("sentry-token", "sntrys_ sntryu_", r"sntry[su]_[A-Za-z0-9_=+/]{60,}"),
    _key("vault-token", "hvs. hvb. hvr.", rf"hv[sbr]\.{_W}{{24,}}"),
    _key("terraform-token", ".atlasv1.", rf"[A-Za-z0-9]{{14}}\.atlasv1\.{_W}{{60,}}"),
    _key("pulumi-token", "pul-", r"pul-[0-9a-f]{40}"),
    _key("doppler-token", "dp.", r"dp\.(?:pt|st|ct|sa)\.[\w.-]{40,}"),
    _key("supabase-key", "sbp_ sb_secret_", rf"(?:sbp_[0-9a-f]{{40}}|sb_secret_{_W}{{20,}})"),
    _key("planetscale-token", "pscale_", r"pscale_(?:tkn|pw|oauth)_[\w.-]{32,}"),
    _key("netlify-token", "nfp_", r"nfp_[A-Za-z0-9]{36,}"),
    _key("fly-token", "fm2_", r"fm2_[A-Za-z0-9+/=]{100,}"),
    _key("circleci-token", "CCIPAT_", r"CCIPAT_[A-Za-z0-9]{22}_[0-9a-f]{40}"),
    _key("artifactory-key", "AKCp", r"AKCp[A-Za-z0-9]{69}"),
    _key("dropbox-token", "sl.", rf"sl\.(?:u\.)?{_W}{{100,}}"),
    _key("facebook-token", "EAA", r"EAA[A-Za-z]{0,3}(?=[A-Za-z]*\d)[A-Za-z0-9]{90,}"),
    _key("alibaba-key-id", "LTAI", r"LTAI[A-Za-z0-9]{20}"),
    _key("age-key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    _key("jwt", "eyJ", rf"eyJ{_W}{{8,}}\.eyJ{_W}{{8,}}\.{_W}{{10,}}"),
    SecretKind(
        "private-key",
        ("PRIVATE KEY",),
        re.compile(
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?=[\s\S]{0,300}?[A-Za-z0-9+/]{40})"
            r"(?:(?!-----END)[\s\S]){1,20000}(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)?"
        ),
    ),
    SecretKind(
        "putty-private-key",
        ("PuTTY-User-Key-File",),
        re.compile(r"PuTTY-User-Key-File-\d:[\s\S]{1,20000}?Private-MAC: [0-9a-f]{16,}"),
    ),
)  # fmt: skip

#: Names of passwords and keys, in any case.
PASSWORDS: Final = (
    r"pass(?:word|wd|phrase|code)|pwd"
    r"|(?:db|database|pg|postgres|mysql|redis|mongo|smtp|ftp|mail|ldap|user|admin|root|key|auth|proxy|basic)"
    r"[ _-]?pass"
    r"|(?:api|access|private|secret|auth|encryption|signing|account)[ _-]?key"
)
#: Names that are those of a secret.
STRONG: Final = (
    rf"{PASSWORDS}"
    r"|(?:client|app|api|signing|webhook|jwt|shared)[ _-]?secret|secret"
)
#: Names that may be one's.
WEAK: Final = (
    r"(?:auth|access|refresh|bearer|api|session|secret|bot|id)?[ _-]?token|credentials?|sess(?:ion)?[ _-]?id"
)
#: Names that say of a value that it is secret; ``weak`` ones name other things too, and ask for more of it.
NAMES: Final = re.compile(
    rf"(?:(?:.*[_. -]|[a-z]+(?=pass(?:word|wd)))?(?P<strong>{STRONG})|(?:.*[_. -])?(?P<weak>{WEAK}))"
    r"(?:[_-]?\d+)?",
    re.IGNORECASE,
)
_HINTS: Final = (
    "pass pwd secret token credential session apikey api_key api-key accesskey access_key access-key"
)
_MORE: Final = (
    "privatekey private_key private-key authkey auth_key encryption_key signing_key accountkey account_key"
)

#: Secrets told by what stands beside them; hints in lower case. Earlier ones win.
NEIGHBOURS: Final = (
    _beside(
        "authorization",
        "authorization",
        r"authorization\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?(?:basic|token|apikey|key|digest|negotiate)\s+(?P<secret>[\w+/=.~-]{8,})",
        False,
    ),
    _beside("bearer-token", "bearer", r"\bbearer\s+(?P<secret>(?=[\w.~+/-]*\d)[\w.~+/-]{16,}={0,2})"),
    _beside("url-password", "://", r"://[^\s:/@\"'<>{}]{0,80}:(?P<secret>[^\s/@\"'<>{}$]{3,200})@[\w\[]"),
    _beside(
        "url-signature",
        "sig= signature=",
        r"[?&](?:sig|X-(?:Amz|Goog)-Signature|Signature)=(?P<secret>[\w%+/~-]{30,}=*)",
        False,
    ),
    _beside(
        "aws-session-token",
        "x-amz-security-token aws_session_token",
        r"(?:x-amz-security-token|aws_session_token)\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?(?P<secret>[\w%+/=-]{50,})",
        False,
    ),
    _beside(
        "azure-storage-key",
        "accountkey= sharedaccesskey=",
        r"(?:AccountKey|SharedAccessKey)=(?P<secret>[A-Za-z0-9+/]{40,}={0,2})",
        False,
    ),
    _beside(
        "connection-password",
        "password= pwd=",
        r";\s{0,3}(?:password|pwd)\s{0,3}=\s{0,3}(?P<secret>[^;\"'\s]{3,200})",
    ),
    # A shell takes no spaces around the sign; PWD is where it is, and a short number counts what passed.
    _beside(
        "named-secret",
        "pass= password= passwd= passphrase= secret= secret_key= api_key= pwd=",
        r"(?-i:(?<![A-Za-z0-9_$])[A-Z0-9_]*(?:PASSWORD|PASSWD|PASSPHRASE|_PASS|_PWD|SECRET(?:_KEY)?|API_KEY))="
        r"(?!\d{1,5}(?!\w)|\.{0,2}/|~/)(?P<secret>[^\s\"'`;&|<>()\[\]{}$,\\]{4,400}+)(?!\()",
    ),
    # A line of a configuration: no path, no call, no word alone.
    _beside(
        "named-secret",
        "pass passphrase pwd secret key",
        rf"^[ \t-]{{0,40}}(?:export[ \t])?[\w.-]{{0,60}}?(?:{STRONG})(?:[_-]?\d+)?"
        r"[ \t]{0,9}(?::=|=|:)[ \t]{0,9}"
        r"(?![\w.:]{0,200}[(\[]|[\"'`<]|\.{0,2}/|~/|https?:)"
        r"(?P<secret>(?=\S{0,200}[a-z])(?=\S{0,200}\d|(?:\S{0,100}[!#$%^&*?~@+]){2})[^\s\"'`,;]{4,200})"
        r"[\"'`,;]?[ \t]{0,200}$",
    ),
    _beside("netrc-password", "machine", r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<secret>\S{3,})"),
    _beside(
        "pgpass-password",
        ":5432: :5433: :6432:",
        r"(?:^|(?<=[\s\"]))[\w.*-]+:\d{4}:[\w*-]+:[\w*-]+:(?P<secret>[^\s:\"]{4,})(?=$|[\s\"])",
    ),
    _beside(
        "password-hash",
        "$1$ $2a$ $2b$ $2y$ $5$ $6$ $y$ $apr1$ $argon2",
        r"(?P<secret>\$(?:1|2[aby]|5|6|y|apr1|argon2(?:id|i|d))\$[\w./$=,+-]{20,})",
        False,
    ),
    _beside("npm-auth", "_authtoken= _auth=", r"_auth(?:token)?\s{0,3}=\s{0,3}(?P<secret>[\w+/=.-]{16,})"),
    _beside(
        "docker-auth", '"auth', r"\"auth\\?\"\s{0,3}:\s{0,3}\\?\"(?P<secret>[A-Za-z0-9+/]{16,}={0,2})\\?\""
    ),
    _beside(
        "curl-password",
        "curl",
        r"\bcurl\b[^\n]{0,300}?\s(?:-u|--user)[ =]?[\"']?[^\s:\"']+:(?P<secret>[^\s\"']{3,})",
    ),
    _beside(
        "mysql-password",
        "mysql mariadb",
        r"\b(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n]{0,200}?\s-p(?P<secret>[^\s\"'-][^\s\"']{3,})",
    ),
    _beside("sshpass-password", "sshpass", r"\bsshpass\s+-p\s{0,3}[\"']?(?P<secret>[^\s\"']{3,})"),
    _beside(
        "cookie",
        "cookie",
        r"\b(?:set-)?cookie\\?[\"']?\s{0,3}:\s{0,3}\\?[\"']?(?:[^\n\"']{0,200}?[ ;])?"
        r"[\w-]*(?:sess|sid|token|auth)[\w-]*=(?P<secret>[^\s;\"']{16,})",
        False,
    ),
    _beside(
        "secret-flag",
        "--pass --pwd --secret --token --api --access --private --auth",
        rf"--(?:[\w-]*-)?(?:{STRONG}|token)[= ]\\?[\"']?(?P<secret>[^\s\"'-][^\s\"']{{5,}})",
    ),
)

#: ``name = value``, ``"name": "value"``, and prose such as ``the password is "value"``.
GIVEN: Final = _beside(
    "named-secret",
    f"{_HINTS} {_MORE}",
    rf"(?P<name>(?:(?<![A-Za-z])|(?-i:(?<=[a-z])(?=[A-Z])))(?:{STRONG}|{WEAK})|pass(?:word|wd))(?:[_-]?\d+)?"
    r"(?:\\{0,3}[\"'\]]{0,2}\s{0,3}(?:=>|:=|(?<![=!<>])=(?!=)|:(?!:))|\s(?:is|was))\s{0,3}"
    r"(?:\\{0,3}(?P<quote>[\"'`])(?P<quoted>[^\"'`\\\s]{4,400})\\{0,3}(?P=quote)"
    r"|(?P<bare>[^\s\"'`,;(){}\[\]<>$&|\\]{8,400}+)(?![(\[]))",
)

#: One of these stands in every hint of a neighbour, so a text with none of them is done at once.
STEMS: Final = (
    *(
        "pass",
        "pwd",
        "secret",
        "token",
        "key",
        "auth",
        "credential",
        "sess",
        "cookie",
        "bearer",
        "sig",
        "machine",
    ),
    *("://", ":5432:", ":5433:", ":6432:", "$", "curl", "mysql", "mariadb", "--"),
)
#: No key of a known service is a word of fewer characters.
SHORTEST: Final = 20


def keys_in(text: str) -> Iterator[str]:
    """The keys of known services in a text, told by their form alone; those that both know come twice."""
    for shape in KEYS:
        if any(hint in text for hint in shape.hints):
            yield from (found[0] for found in shape.pattern.finditer(text))
    yield from (value for _, value in by_form(text) if is_key(value))


def is_key(value: str) -> bool:
    """Whether a value that a rule of detect-secrets gives is a key: some give its beginning, or a word."""
    return len(value) >= 8 and any(map(str.isdigit, value))
