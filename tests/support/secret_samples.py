"""Made-up secrets of every shape that is known, for tests and benchmarks: random, so none opens anything."""

from __future__ import annotations

import base64
import json
import random
import string
from dataclasses import dataclass

_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_B64 = _ALNUM + "+/"
_URL = _ALNUM + "_-"


@dataclass(frozen=True)
class Sample:
    """A text that holds one secret."""

    name: str
    text: str
    secret: str


def samples(seed: int) -> list[Sample]:
    """One sample of each shape."""
    dice = random.Random(seed)

    def some(letters: str, count: int) -> str:
        # A digit and both cases, as real keys have by chance.
        made = [dice.choice(letters) for _ in range(count)]
        for place, kind in enumerate((string.digits, string.ascii_lowercase, string.ascii_uppercase)):
            fits = [one for one in letters if one in kind]
            if fits and count > 8:
                made[3 + place] = dice.choice(fits)
        return "".join(made)

    def pem(kind: str) -> str:
        body = "\n".join(some(_B64, 64) for _ in range(6))
        return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"

    def jwt() -> str:
        parts = [json.dumps(one).encode() for one in ({"alg": "HS256", "typ": "JWT"}, {"sub": some(_HEX, 9)})]
        head, body = (base64.urlsafe_b64encode(one).decode().rstrip("=") for one in parts)
        return f"{head}.{body}.{some(_URL, 43)}"

    keys = {
        "aws access key id": "AKIA" + some(string.ascii_uppercase + "234567", 16),
        "aws temporary key id": "ASIA" + some(string.ascii_uppercase + "234567", 16),
        "google api key": "AIza" + some(_URL, 35),
        "google oauth token": "ya29." + some(_URL, 60),
        "google client secret": "GOCSPX-" + some(_URL, 28),
        "azure client secret": some(_ALNUM, 3) + "8Q~" + some(_ALNUM, 34),
        "github token": "ghp_" + some(_ALNUM, 36),
        "github app token": "ghs_" + some(_ALNUM, 36),
        "github fine token": "github_pat_" + some(_ALNUM, 22) + "_" + some(_ALNUM, 59),
        "gitlab token": "glpat-" + some(_URL, 20),
        "bitbucket token": "ATBB" + some(_ALNUM, 32),
        "atlassian token": "ATATT3" + some(_URL, 180),
        "openai project key": "sk-proj-" + some(_URL, 74),
        "openai key": "sk-" + some(_ALNUM, 48),
        "deepseek key": "sk-" + some(_HEX, 32),
        "anthropic key": "sk-ant-api03-" + some(_URL, 93),
        "openrouter key": "sk-or-v1-" + some(_HEX, 64),
        "langfuse key": "sk-lf-" + "-".join(some(_HEX, n) for n in (8, 4, 4, 4, 12)),
        "langsmith key": f"lsv2_pt_{some(_HEX, 32)}_{some(_HEX, 10)}",
        "huggingface token": "hf_" + some(string.ascii_letters, 34),
        "groq key": "gsk_" + some(_ALNUM, 52),
        "xai key": "xai-" + some(_ALNUM, 80),
        "perplexity key": "pplx-" + some(_ALNUM, 48),
        "replicate token": "r8_" + some(_ALNUM, 37),
        "nvidia key": "nvapi-" + some(_URL, 64),
        "slack bot token": f"xoxb-{some(string.digits, 12)}-{some(string.digits, 13)}-{some(_ALNUM, 24)}",
        "slack app token": f"xapp-1-A{some(_ALNUM, 10)}-{some(string.digits, 13)}-{some(_HEX, 64)}",
        "discord token": "M" + some(_ALNUM, 23) + "." + some(_URL, 6) + "." + some(_URL, 38),
        "telegram token": some(string.digits, 10) + ":AA" + some(_URL, 33),
        "stripe key": "sk_live_" + some(_ALNUM, 24),
        "stripe webhook secret": "whsec_" + some(_ALNUM, 32),
        "twilio key": "SK" + some(_HEX, 32),
        "sendgrid key": f"SG.{some(_URL, 22)}.{some(_URL, 43)}",
        "mailgun key": "key-" + some(_HEX, 32),
        "mailchimp key": some(_HEX, 32) + "-us12",
        "npm token": "npm_" + some(_ALNUM, 36),
        "pypi token": "pypi-AgEIcHlwaS5vcmc" + some(_URL, 150),
        "rubygems key": "rubygems_" + some(_HEX, 48),
        "docker token": "dckr_pat_" + some(_URL, 27),
        "digitalocean token": "dop_v1_" + some(_HEX, 64),
        "heroku key": "HRKU-" + some(_URL, 60),
        "shopify token": "shpat_" + some(_HEX, 32),
        "square token": "sq0atp-" + some(_URL, 22),
        "databricks token": "dapi" + some(_HEX, 32),
        "linear key": "lin_api_" + some(_ALNUM, 40),
        "notion token": "ntn_" + some(_ALNUM, 46),
        "airtable token": f"pat{some(_ALNUM, 14)}.{some(_HEX, 64)}",
        "figma token": "figd_" + some(_URL, 43),
        "postman key": f"PMAK-{some(_HEX, 24)}-{some(_HEX, 34)}",
        "newrelic key": "NRAK-" + some(string.ascii_uppercase + string.digits, 27),
        "grafana token": f"glsa_{some(_ALNUM, 32)}_{some(_HEX, 8)}",
        "vault token": "hvs." + some(_URL, 90),
        "terraform token": f"{some(_ALNUM, 14)}.atlasv1.{some(_URL, 67)}",
        "supabase key": "sbp_" + some(_HEX, 40),
        "age key": "AGE-SECRET-KEY-1" + some(string.ascii_uppercase + string.digits, 58),
        "jwt": jwt(),
        "rsa private key": pem("RSA PRIVATE KEY"),
        "openssh private key": pem("OPENSSH PRIVATE KEY"),
        "pgp private key": pem("PGP PRIVATE KEY BLOCK"),
    }
    found = [Sample(name, f"the key is {key} .", key) for name, key in keys.items()]
    word, long, hexed = some(_ALNUM, 12), some(_B64, 40), some(_HEX, 40)
    beside = {
        "aws secret key": (f"aws_secret_access_key = {long}", long),
        "aws secret key in JSON": (json.dumps({"SecretAccessKey": long}), long),
        "aws presigned url": (
            f"https://b.s3.amazonaws.com/k?X-Amz-Signature={hexed + hexed[:24]}&x=1",
            hexed,
        ),
        "azure storage key": (f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={long * 2}==;", long),
        "azure sas": (f"https://a.blob.core.windows.net/c?sv=2024&sig={some(_ALNUM, 43)}%3D&se=1", "sig"),
        "slack webhook": (
            f"https://hooks.slack.com/services/T0AAAAAAA/B0BBBBBBB/{some(_ALNUM, 24)}",
            "T0AAAAAAA",
        ),
        "bearer header": (f"Authorization: Bearer {long}", long),
        "bearer in curl": (f"curl -H 'Authorization: Bearer {hexed}' https://x.io", hexed),
        "basic header": (f'"authorization": "Basic {some(_B64, 24)}=="', "Basic "),
        "api key header": (f"X-Api-Key: {word}9", word),
        "url password": (f"git clone https://bob:{word}@git.corp.io/x.git", word),
        "postgres dsn": (f"postgresql+psycopg://app:p-{word}!@db:5432/main", word),
        "mongodb dsn": (f"mongodb+srv://root:{word}@c0.mongodb.net/?retryWrites=true", word),
        "redis dsn": (f"REDIS_URL=redis://:{word}@cache:6379/0", word),
        "sql server": (f"Server=db;Database=m;User Id=sa;Password={word}!;Encrypt=true", word),
        "netrc": (f"machine api.corp.io login bob password {word}", word),
        "pgpass": (f"db.corp.io:5432:main:app:{word}", word),
        "shadow": (f"root:$6${some(_ALNUM, 8)}${some(_ALNUM + './', 86)}:19000:0:99999:7:::", "$6$"),
        "bcrypt": (f"bob:$2b$12${some(_ALNUM + './', 53)}", "$2b$"),
        "npmrc": (f"//registry.corp.io/:_authToken={some(_HEX, 36)}", "_authToken="),
        "docker config": (json.dumps({"auths": {"r.io": {"auth": some(_B64, 24) + "=="}}}), '"auth": "'),
        "curl user": (f"curl -sS -u bob:{word} https://x.io/api", word),
        "mysql flag": (f"mysql -h db -u root -p{word} shop", word),
        "sshpass": (f"sshpass -p '{word}' ssh bob@host", word),
        "flag": (f"deploy --api-key {some(_ALNUM, 20)} --region eu", "--api-key "),
        "cookie": (f"Cookie: theme=dark; sessionid={some(_ALNUM, 32)}; x=1", "sessionid="),
        "export": (f"export WANDB_API_KEY={hexed}", hexed),
        "dotenv": (f"DATADOG_API_KEY={hexed[:32]}\nDEBUG=1", hexed[:32]),
        "json password": (json.dumps({"user": "bob", "password": "correct-horse-7"}), "correct-horse-7"),
        "json in json": (json.dumps(json.dumps({"client_secret": word + word})), word),
        "python": (f'client = Client(api_key="{hexed}")', hexed),
        "yaml": (f"db:\n  password: {word}!\n  port: 1", word),
        "prose": (f'The password is "{word}", use it.', word),
        "access token": (f'{{"access_token": "{long}", "token_type": "bearer", "expires_in": 3600}}', long),
    }
    for name, (text, part) in beside.items():
        found.append(Sample(name, text, _secret(text, part)))
    return found


def _secret(text: str, part: str) -> str:
    """The secret: ``part`` where it is one, else the run of characters after it."""
    if len(part) >= 12:
        return part
    rest = text[text.index(part) + len(part) :].lstrip("= ")
    end = next((place for place, sign in enumerate(rest) if sign in " ;&\"'\n:%"), len(rest))
    return rest[:end]
