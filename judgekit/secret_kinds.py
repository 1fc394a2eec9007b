"""The kinds of secrets that are known by their form, their name or their place: data for `judgekit.redaction`.

Each pattern stands behind the words of which a text must have one for it to match: looking for those costs a
scan of memory, and a pattern is compiled when a text first has one. That nothing stands before a secret that
would make it part of a longer word is checked where they are used. No pattern takes time that grows faster
than the text: repetitions are possessive or bounded.
"""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple


class Kind(NamedTuple):
    """A kind of secret: what it is called, words one of which every text with one has, and its pattern."""

    name: str
    words: tuple[str, ...]
    source: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern; where it has a group `value` that is the secret, else all of it."""
        return _compiled(self.source)

    def is_in(self, text: str) -> bool:
        """Whether a text may have it."""
        for word in self.words:  # noqa: SIM110 - twice as fast
            if word in text:
                return True
        return False


@functools.cache
def _compiled(source: str) -> re.Pattern[str]:
    return re.compile(source)


def _kinds(*kinds: tuple[str, str, str]) -> tuple[Kind, ...]:
    return tuple(Kind(name, tuple(words.split(" ")), source) for name, words, source in kinds)


FORMS: Final = _kinds(
    ("Anthropic key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{16,}+"),
    ("OpenAI key", "sk-", r"sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{16,}+"),
    ("OpenRouter key", "sk-or-", r"sk-or-(?:v\d-)?[a-f0-9]{32,}+"),
    ("Langfuse key", "sk-lf-", r"sk-lf-[a-f0-9-]{32,}+"),
    ("model provider key", "sk-", r"sk-[A-Za-z0-9]{32,}+"),
    (
        "model provider key",
        "gsk_ pplx- xai- csk- fw_ r8_ tgp_v1_ nvapi- jina_ pa- voyage- tvly- fc- e2b_ lsv2_ key_",
        r"(?:gsk_|pplx-|xai-|csk-|fw_|r8_|tgp_v1_|nvapi-|jina_|tvly-(?:dev-|prod-)?|e2b_|lsv2_(?:pt|sk)_)"
        r"[A-Za-z0-9_-]{24,}+",
    ),
    ("Hugging Face token", "hf_", r"hf_[A-Za-z0-9]{30,}+"),
    ("Hugging Face token", "api_org_", r"api_org_[A-Za-z0-9]{30,}+"),
    ("GitHub token", "github_pat_", r"github_pat_[A-Za-z0-9_]{22,}+"),
    ("GitHub token", "v1.", r"(?<![\w.])v1\.[0-9a-f]{40}(?![0-9A-Za-z])"),
    ("GitLab token", "gl", r"gl(?:pat|dt|ft|soat|rt|cbt|ptt|imt|agent|oas|ffct)-[A-Za-z0-9_.-]{20,}+"),
    ("Google API key", "AIza", r"AIza[A-Za-z0-9_-]{35}"),
    ("Google client secret", "GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{20,}+"),
    ("Google access token", "ya29.", r"ya29\.[A-Za-z0-9_-]{20,}+"),
    ("Google refresh token", "1//0", r"(?<!\d)1//0[A-Za-z0-9_-]{30,}+"),
    ("Firebase key", "AAAA", r"AAAA[A-Za-z0-9_-]{7}:[A-Za-z0-9_-]{100,}+"),
    ("Slack token", "xapp-", r"xapp-\d-[A-Z0-9]{6,}+-\d{6,}+-[a-f0-9]{32,}+"),
    ("Slack token", "xox", r"xox[abcdeoprs](?:\.xox[abceoprs])?+-[A-Za-z0-9%-]{20,}+"),
    ("Stripe key", "k_live_ k_test_", r"[prs]k_(?:live|test)_[A-Za-z0-9]{16,}+"),
    ("Stripe webhook secret", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,}+"),
    ("npm token", "npm_", r"npm_[A-Za-z0-9]{36,}+"),
    ("PyPI token", "pypi-", r"pypi-[A-Za-z0-9_-]{60,}+"),
    ("RubyGems key", "rubygems_", r"rubygems_[a-f0-9]{48}"),
    ("Docker token", "dckr_", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{24,}+"),
    ("DigitalOcean token", "_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    ("Vault token", "hv", r"hv[bsr]\.[A-Za-z0-9_-]{24,}+"),
    ("Databricks token", "dapi", r"dapi[a-f0-9]{32}"),
    ("Shopify token", "shp", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    ("Grafana token", "gl", r"gl(?:c_[A-Za-z0-9+/=]{32,}+|sa_[A-Za-z0-9]{32}_[a-f0-9]{8})"),
    ("Grafana key", "eyJrIjoi", r"eyJrIjoi[A-Za-z0-9+/]{40,}+={0,2}"),
    ("New Relic key", "NRAK- NRII- NRJS- NRRA-", r"NR(?:AK|II|JS|RA)-[A-Za-z0-9_-]{19,}+"),
    ("Linear key", "lin_", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}+"),
    ("Notion token", "ntn_", r"ntn_[A-Za-z0-9]{40,}+"),
    ("Notion token", "secret_", r"secret_[A-Za-z0-9]{43}(?![A-Za-z0-9])"),
    ("Postman key", "PMAK-", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    ("Sentry token", "sntry", r"sntry[su]_[A-Za-z0-9+/=_-]{40,}+"),
    ("Sentry key", "@", r"https://[a-f0-9]{32}(?::[a-f0-9]{32})?@[\w.-]{1,80}/\d+"),
    ("Supabase key", "sbp_ sb_secret_", r"sb(?:p_[a-f0-9]{40}|_secret_[A-Za-z0-9_-]{20,}+)"),
    ("Mailgun key", "key-", r"key-[a-f0-9]{32}(?![a-f0-9])"),
    ("Atlassian token", "ATATT3 ATCTT3 ATBB", r"AT(?:[AC]TT3[A-Za-z0-9_=-]{60,}+|BB[A-Za-z0-9]{32})"),
    ("Artifactory key", "AKCp cmVmdGtuO", r"(?:AKCp[A-Za-z0-9]{40,}+|cmVmdGtuO[A-Za-z0-9]{50,}+)"),
    ("Terraform token", ".atlasv1.", r"(?<![A-Za-z0-9])[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}+"),
    (
        "Square token",
        "sq0 EAAA",
        r"(?:sq0[a-z]{3}-[A-Za-z0-9_-]{22,}+|EAAA[A-Za-z0-9_-]{60}(?![A-Za-z0-9_-]))",
    ),
    ("Facebook token", "EAA", r"EAA[A-Z][A-Za-z0-9]{90,}+"),
    ("age key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-(?:PQ-)?1[0-9A-Z]{58,}+"),
    ("Azure client secret", "Q~", r"(?<![\w~.-])[\w~.-]{3}\dQ~[\w~.-]{31,34}"),
    (
        "Azure key",
        "AzCa AzSe ACDb AcDb +ASt JQQJ",
        r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{30,120}?(?:AzCa|AzSe|ACDb|AcDb|\+ASt|JQQJ)[A-Za-z0-9+/]{4,10}={0,2}",
    ),
    ("Airtable token", "pat", r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    ("PlanetScale token", "pscale_", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,}+"),
    ("Doppler token", "dp.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{1,35}\.)?[A-Za-z0-9]{40,}+"),
    ("Pulumi token", "pul-", r"pul-[a-f0-9]{40}"),
    (
        "Fly token",
        "fo1_ fm1 fm2",
        r"(?:FlyV1 fm\d[ar]?_|fo1_|fm[12][ar]?_)[A-Za-z0-9+/=_-]{40,}+(?:,fm\d[ar]?_[A-Za-z0-9+/=_-]+)*+",
    ),
    ("Netlify token", "nfp_ nfc_ nfu_", r"nf[pcuob]_[A-Za-z0-9]{36,}+"),
    ("Buildkite token", "bkua_ bkat_ bkct_", r"bk(?:ua|at|ct)_[A-Za-z0-9]{30,}+"),
    ("CircleCI token", "CCIPAT_ CCIPRJ_", r"CCIP(?:AT|RJ)_[A-Za-z0-9_]{40,}+"),
    ("SonarQube token", "sq", r"sq[uap]_[a-f0-9]{40}"),
    ("Snyk token", "snyk_", r"snyk_(?:uat|sat)\.[a-z0-9]{8}\.[A-Za-z0-9_-]{40,}+"),
    ("Dynatrace token", "dt0", r"dt0[a-z]\d\d\.[A-Z2-7]{24}\.[A-Z2-7]{64}"),
    ("Datadog key", "pub dda", r"(?:ddapi_|ddp_)[A-Za-z0-9]{32,}+"),
    (
        "HubSpot token",
        "pat-",
        r"pat-(?:na|eu)\d-[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}",
    ),
    ("Sendinblue key", "keysib-", r"x(?:keysib|smtpsib)-[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    ("Resend key", "re_", r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}+"),
    ("Figma token", "fig", r"fig[du][a-z]?_[A-Za-z0-9_-]{36,}+"),
    ("Dropbox token", "sl.", r"(?<![\w.])sl\.(?:u\.)?[A-Za-z0-9_-]{60,}+"),
    ("Contentful token", "CFPAT-", r"CFPAT-[A-Za-z0-9_-]{40,}+"),
    ("Duffel token", "duffel_", r"duffel_(?:test|live)_[A-Za-z0-9_=-]{40,}+"),
    ("EasyPost key", "EZ", r"EZ[AT]K[A-Za-z0-9]{54}"),
    ("Flutterwave key", "FLWSECK", r"FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,}+(?:-X)?"),
    ("Frame.io token", "fio-u-", r"fio-u-[A-Za-z0-9_=-]{60,}+"),
    ("Infracost key", "ico-", r"ico-[A-Za-z0-9]{32}"),
    ("Prefect key", "pnu_ pnb_", r"pn[ub]_[A-Za-z0-9]{36}"),
    ("ReadMe key", "rdme_", r"rdme_[a-z0-9]{70}"),
    ("Scalingo token", "tk-us-", r"tk-us-[A-Za-z0-9_-]{48}"),
    ("Shippo token", "shippo_", r"shippo_(?:live|test)_[a-f0-9]{40}"),
    ("Typeform token", "tfp_", r"tfp_[A-Za-z0-9_.=-]{40,}+"),
    (
        "Yandex key",
        "AQVN t1. y0_",
        r"(?:AQVN[A-Za-z0-9_-]{35,38}|(?<![\w.])t1\.[A-Z0-9a-z_-]{1,800}=\.[A-Za-z0-9_-]{86}={0,2}|y[0-6]_[A-Za-z0-9_-]{50,}+)",
    ),
    ("Alibaba key", "LTAI", r"LTAI[A-Za-z0-9]{16,24}(?![A-Za-z0-9])"),
    ("Tencent key", "AKID", r"AKID[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    ("Cloudflare key", "v1.0-", r"v1\.0-[a-f0-9]{24}-[a-f0-9]{146}"),
    ("Clojars token", "CLOJARS_", r"CLOJARS_[a-z0-9]{60}"),
    ("crates.io token", "cio", r"cio(?<![A-Za-z0-9]cio)[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    ("NuGet key", "oy2", r"oy2(?<![A-Za-z0-9]oy2)[a-z0-9]{43}(?![A-Za-z0-9])"),
    ("Braintree token", "access_token$", r"access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32}"),
    ("Mapbox token", "sk.eyJ pk.eyJ", r"[sp]k\.eyJ[A-Za-z0-9_-]{20,}+\.[A-Za-z0-9_-]{20,}+"),
    (
        "1Password token",
        "ops_eyJ A3-",
        r"(?:ops_eyJ[A-Za-z0-9+/_=-]{40,}+|A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3})",
    ),
    ("Tailscale key", "tskey-", r"tskey-[a-z]{2,12}-[A-Za-z0-9]{8,}+(?:-[A-Za-z0-9]{16,}+)?"),
    ("Heroku key", "HRKU-", r"HRKU-[A-Za-z0-9_-]{36,}+"),
    ("Zapier webhook", "hooks.zapier.com", r"hooks\.zapier\.com/hooks/catch/\d+/\w+"),
    ("Ethereum key", "xprv yprv zprv tprv", r"(?<![A-Za-z0-9])[xyzt]prv[1-9A-HJ-NP-Za-km-z]{90,112}"),
    ("Nostr key", "nsec1", r"nsec1[02-9ac-hj-np-z]{58}"),
    ("Lightning macaroon", "0201036c6e64", r"0201036c6e64[0-9a-f]{60,}+"),
    ("wallet key", "5 K L", r"[5KL](?<![A-Za-z0-9+/_=.-].)[1-9A-HJ-NP-Za-km-z]{50,51}(?![A-Za-z0-9+/_=-])"),
    (
        "PASETO",
        "v1.l v2.l v3.l v4.l v1.p v2.p v3.p v4.p k1. k2. k3. k4.",
        r"[vk](?<![\w.].)(?:[1-4]\.(?:local|public|secret)(?:-pw|-wrap\.pie)?)\.[A-Za-z0-9_-]{24,}+(?:\.[A-Za-z0-9_-]+)?",
    ),
    (
        "webhook address",
        "discord webhook logic.azure hooks.",
        r"https://(?:discord(?:app)?\.com/api/webhooks/\d+|[\w.-]{1,80}\.webhook\.office|hooks\.slack\.com/(?:workflows|triggers)"
        r"|chat\.googleapis\.com/v1/spaces/\w+/messages\?key=)[\w/@.=&?%-]{20,}+",
    ),
    (
        "JSON web token",
        "eyJ",
        r"eyJ(?<![\w-]eyJ)[\w-]{8,}+\.(?:[\w-]{4,}+\.[\w-]*+(?:\.[\w-]*+){0,2}|[\w-]{8,}+)",
    ),
    ("web session", ".eJ", r"(?<![\w.-])\.eJ[\w-]{16,}+\.[\w-]{5,8}\.[\w-]{20,}+"),
    (
        "password hash",
        "$",
        r"\$(?:1|2[abxy]?|5|6|7|9|y|gy|md5|sha1|apr1|P|H|S|argon2(?:id?|d)|scrypt|pbkdf2(?:-\w{2,8})?|bcrypt-sha256)\$"
        r"(?=[^\s\"'`<>:,;()]{12})[./A-Za-z0-9$+=_-]{1,30}+(?:[$,=./+A-Za-z0-9_-]{0,300}+)",
    ),
    (
        "password hash",
        "}",
        r"\{(?:SSHA|SHA|SMD5|MD5|CRYPT|SSHA256|SHA256|SSHA512|SHA512|PBKDF2[\w-]{0,10}|ARGON2)\}[./A-Za-z0-9+$=]{12,}+={0,2}",
    ),
    (
        "password hash",
        "_sha256$ _sha1$ bcrypt$ argon2$",
        r"(?:pbkdf2_sha(?:1|256)|bcrypt(?:_sha256)?|argon2|scrypt)\$[\w$./+=,]{20,}+",
    ),
    (
        "password hash",
        "SCRAM-SHA-256$",
        r"SCRAM-SHA-256\$\d{1,6}:[A-Za-z0-9+/=]{16,}+\$[A-Za-z0-9+/=:]{40,}+",
    ),
    ("password hash", ":::", r"(?<=:)(?:[0-9a-fA-F]{32}|NO PASSWORD\*{21}):[0-9a-fA-F]{32}(?=:::)"),
    ("Telegram token", "bot", r"bot\d{8,10}:AA[A-Za-z0-9_-]{33}"),
    ("minisign key", "RWRTY0I", r"RWRTY0I[A-Za-z0-9+/]{100,}+={0,2}"),
    (
        "private key",
        "MII MHc MHQ MIG MC4CAQ b3BlbnNzaC1rZXkt",
        r"(?<![A-Za-z0-9+/])(?:MII[A-Za-z0-9+/]{2,4}(?:IBADANBgkqhkiG9w0BAQEFAASC|IBAAKC|gIBAAKC|IBAAKB)[A-Za-z0-9+/]{2}|MHcCAQEEI|MHQCAQEEI|MIGkAgEBBD"
        r"|MIGHAgEAMBMGByqGSM49|MIG2AgEAMBAGByqGSM49|MC4CAQAwBQYDK2VwBCIEI|b3BlbnNzaC1rZXktdjE)"
        r"[A-Za-z0-9+/]{16,}+(?:[\s\"'+,\\>#*|/]{0,40}+(?:[nr](?=[A-Za-z0-9+/]{16}))?[A-Za-z0-9+/]{16,}+)*+={0,2}",
    ),
)
"""Beside the plugins of detect-secrets: younger kinds, and those of which its patterns take only a part."""

PLUGIN_WORDS: Final = {
    "AWS key": ("AKIA", "ASIA", "A3T", "ABIA", "ACCA", "aws", "AWS"),
    "Discord token": ("M", "N", "O"),
    "GitHub token": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    "GitLab token": ("gl", "GR1348941"),
    "Mailchimp key": ("-us",),
    "PyPI token": ("pypi-",),
    "SendGrid key": ("SG.",),
    "Slack token": ("xox", "hooks.slack.com"),
    "Square secret": ("sq0csp-",),
    "Stripe key": ("k_live_",),
    "Telegram token": (":",),
    "Twilio key": ("AC", "SK"),
}
"""Words that a text must have for a plugin of detect-secrets to find anything."""

NAMED: Final = re.compile(
    r"(?P<core>pass|pwd|pswd|kennwort|contrasena|senha|wachtwoord|haslo|mdp|secret|token|cred|key|auth|psk|(?<![a-z])pw|rootpw"
    r"|bindpw|cookie|sess|(?<![a-z])sid|(?<![a-z])pin|salt|pepper|seed|hmac|jwt|(?<![a-z])pat|signature|(?<![a-z])sig|bearer|mnemonic|connstr|connection.?string"
    r"|\u5bc6\u7801|\u5bc6\u78bc|\u30d1\u30b9\u30ef\u30fc\u30c9|\ube44\ubc00\ubc88\ud638|[n\u043f]apo\u043b\u044c|mots? de passe)"
    r"(?P<tail>[\w-]{0,24}+)"
    r"(?P<close>[\"'\]`*)]{0,3}+(?:</(?:b|strong|em|i|code|label|dt)>)?)[ \t]{0,8}+"
    r"(?::[ \t]{0,3}(?:&(?:\'static[ \t])?)?[a-z][\w.\[\]|?]{0,40}[ \t]{0,3}(?==[^=]))?"
    r"(?P<operator>[?|+.:]{0,2}=>?|==?+=?+|[-=~]>|<-|:(?!:))"
    r"(?P<gap>(?:\*\*|</(?:b|strong|em|i|code|label|dt)>)?[ \t]{0,40}+(?:\\?\n[ \t]{1,40}(?=[\"'])|<(?:b|strong|em|i|code|dd)>)?)"
    r"(?:[\w.]{0,20}(?:secret\w{0,8}|string|bytes|some|password)\()?+(?:[&!][\w!-]{1,30}[ \t]{1,4})?(?:[rbfu@$]{1,2}(?=[\"'`]))?(?:\"\"(?=\")|''(?='))?"
    r"(?P<value>\"[^\"\n]{4,600}+\"|'[^'\n]{4,600}+'|`[^`\n]{4,600}+`|[^\s\"'`,;<>\[\](){}]{4,600}+(?![\[({]))"
)
"""A value under a name, in small letters; name and value together decide whether it is a secret."""

ENDINGS: Final = frozenset(
    [
        "id",
        "value",
        "val",
        "prod",
        "production",
        "dev",
        "development",
        "test",
        "testing",
        "staging",
        "stage",
        "live",
        "hash",
        "enc",
        "encrypted",
        "base64",
        "b64",
        "raw",
        "plain",
        "plaintext",
        "cleartext",
        "text",
        "string",
        "str",
        "old",
        "new",
        "current",
        "default",
        "base",
        "data",
        "main",
        "primary",
        "secondary",
        "admin",
        "root",
        "env",
        "1",
        "2",
        "3",
        "01",
        "02",
        "hex",
        "pem",
        "bytes",
        "b",
    ]
)
"""What may stand behind the word of a name that says what it is: `client-key-data`, `TOKEN_PROD`."""

STRONG: Final = re.compile(
    r"(?:password|passwd|passphrase|passcode|passwort|pwd|pswd|passw|kennwort|contrasena|motdepasse|mdp|senha|wachtwoord|haslo"
    r"|\u5bc6\u7801|\u5bc6\u78bc|\u30d1\u30b9\u30ef\u30fc\u30c9|\ube44\ubc00\ubc88\ud638|[n\u043f]apo\u043b\u044c)s?$"
)
SHORT: Final = frozenset(
    [
        "pass",
        "pw",
        "psk",
        "pin",
        "userpass",
        "dbpass",
        "rootpw",
        "bindpw",
        "olcrootpw",
        "smtppass",
        "ftppass",
        "mysqlpass",
        "mypass",
        "adminpass",
        "rootpass",
        "userpw",
        "requirepass",
        "masterauth",
        "dbpw",
        "authpass",
        "privpass",
        "storepass",
        "keypass",
        "mapass",
        "bindpass",
        "sshpass",
        "sudopass",
        "becomepass",
        "wifipass",
        "pskkey",
        "wpapsk",
        "presharedsecret",
        "vncpass",
        "loginpass",
        "mailpass",
        "authpw",
        "obscuredpass",
    ]
)
SECRET: Final = re.compile(
    r"(?:credentials?|creds?|secret|secrets|token|tokens|mnemonic"
    r"|(?:api|access|auth|private|account|client|signing|signature|encryption|encrypt|decryption|master|shared|service|hmac|preshared|secret|storage"
    r"|subscription|license|licence|consumer|application|app|host|function|admin|deploy|write|read|ingest|webhook|session|cookie|jwt|aes|des|rsa"
    r"|ssh|ssl|tls|crypto|cipher|symmetric|wallet|ethereum|eth|bot|integration|primary|secondary|backup|cosmosdb|search|maps|server|validator|validation|decryption|data"
    r"|kms|sas|site|user|project|team|org|stream|partner|merchant|publish|root|restic|borg|unseal|recovery|wep|network|instrumentation|routing"
    r"|otp|totp|mfa|identity|management|hub|grid|bus|vision|speech|openai|anthropic|cohere|gemini|groq|mistral|stripe|twilio|sendgrid|datadog"
    r"|algolia|mailgun|firebase|google|azure|aws|gcp|github|gitlab|slack|discord|telegram|sentry|newrelic|cloudflare|heroku|secretaccess)keys?)$"
)
WEAK: Final = re.compile(
    r"(?:key|auth|authorization|cookies?|session|sess|sessid|sessionid|sid|salt|pepper|seed|hmac|signature|sig|pat|jwt|bearer"
    r"|connectionstring|connstr|webhook)$"
)

TRIGGER: Final = re.compile(
    r"pass|pwd|pswd|psk|secret|token|cred|key|auth|cookie|sess|salt|pepper|seed|hmac|jwt|signature|sig=|bearer|basic|digest"
    r"|mnemonic|phrase|connstr|connect|kennwort|contrase|senha|wachtwoord|haslo|mdp|login|logged in|log in|sign in|sign-in|identified|identify"
    r"|machine[ \t]+[\w-]+\.|default login|default user|community|com2sec|createuser|crypt\(|rootpw|bindpw"
    r"| -[pwaxkucb](?:[ \w\"']|$)|\n-[pwaxkucb][ \w]|\t-[pwaxkucb]|/p:|net use|net user|://[^\s/]{0,80}[@:]|:::|:\*:|:[1-6]\d{3,4}:"
    r"|:[./\w]{13}(?:\n|:|\Z)|\*[0-9a-f]{40}|otpauth|echo |smbclient|snmp|sqlplus|oracle:|pw\b|pin\b|pat\b|sid\b|define\(|code=|\?[tk]=|&[tk]=|accounts?[ :]|creds|\" \*|\* \"| /rp|wallet|signer|deployer"
    r"|/t/|<d>|kty|napo\u043b|\u043fapo|\u5bc6|\u30d1|\ube44|user/|user \S|poll |:587|:465|recovery|backup code|scratch|emergency|2fa|mfa"
)
"""What every line has in which `NAMED` or one of `CARRIED` can begin: other lines are not looked at."""

_CALLED: Final = (
    r"(?:password|passwd|passphrase|passcode|passwort|pwd|secret(?:[_-]?key)?|token|api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?key"
    r"|account[_-]?key|encryption[_-]?key|credentials?|(?:[_.-]|^)(?:pass|psk|pw))"
)
_V: Final = r"[^\s\"'`<>|;&]{4,200}+"
_Q: Final = r"[\"']?"
_END: Final = r"(?=[\"'`]?[ \t]*(?:$|\n|[|;&<>]|-{1,2}[a-z]|/[a-z]|[\"'`]|https?:|[\w-]{1,60}[.@:/]|\\\n))"

CARRIED: Final = _kinds(
    # Addresses
    (
        "password",
        "://",
        r"://[^\s/:@\"'<>]{0,80}+:(?!\d{1,5}[/?#])(?P<value>[^\s\"'<>`]{1,200})@(?=[\w\[{$%*-])",
    ),
    ("token", "://", r"://(?P<mixed>[^\s/:@\"'<>.]{16,200}+)(?::x-oauth-basic|:x|:)?@"),
    ("password", "@", r"\b(?:jdbc:)?oracle:thin:[\w.-]{1,40}/(?P<value>[^\s@\"'/]{3,80})@"),
    (
        "password",
        "sqlplus",
        r"sqlplus[ \t]{1,4}(?:-\w[ \t]{1,4}){0,3}[\w.-]{1,40}/(?P<value>[^\s@\"'/]{3,80})@",
    ),
    (
        "token",
        "= =",
        r"[?&;#](?:amp;)?(?:key|auth|code|sid|[\w.-]{0,20}sess(?:ion|id)?(?:_?id)?|sig|signature|t|k|hmac|jwt|pat|apikey|api[_-]key|access[_-]?token|auth[_-]?token|token|secret|[\w.-]{0,20}(?:token|secret|key))=(?P<random>[\w%+/=.~-]{10,}+)",
    ),
    (
        "password",
        "=",
        r"[?&;](?:pass|password|passwd|pwd|pw|passphrase|psw)=(?P<value>[^\s&\"'<>#`;)\]]{4,200}+)",
    ),
    (
        "signature",
        "sig",
        r"[?&](?:sig|x-amz-signature|x-goog-signature|signature)=(?P<value>[\w%+/=-]{32,}+)",
    ),
    ("token", "x-amz-security-token", r"x-amz-security-token=(?P<value>[\w%+/=-]{32,}+)"),
    ("token", "otpauth://", r"otpauth://[^\s\"'<>]{0,200}?secret=(?P<value>[a-z2-7]{10,}+=*)"),
    ("token", "/t/", r"/t/(?P<mixed>[a-z]{2}-[0-9a-f]{8}-[0-9a-f-]{20,40})/"),
    ("password", "%", r"smbclient[^\n]{0,100}?-u[ \t]?[\"']?[\w\\.-]{1,60}%(?P<value>[^\s\"']{3,100})"),
    # Headers
    (
        "password",
        "basic",
        r"(?:authorization[\"']?[ \t]*+[:=,][ \t]*+[\"']?|[\"'](?=basic[ \t]+[\w+/=-]{16}))basic[ \t]++(?P<value>[\w+/=-]{8,}+)",
    ),
    (
        "token",
        "authorization",
        r"authorization[\"']?[ \t]*+[:=][ \t]*+[\"']?(?!basic|bearer|digest)(?:[a-z][\w-]{1,30}[ \t:]++)?+(?:token=[\"']?)?(?P<random>[\w+/=.~:-]{16,}+)",
    ),
    ("token", "bearer", r"bearer[ \t:\"'=]{1,4}(?P<mixed>[\w~+/.=-]{16,}+)"),
    ("password", "digest", r"digest[ \t][^\n]{0,300}?response=[\"']?(?P<value>[0-9a-f]{32,64})"),
    ("signature", "aws4-hmac", r"aws4-hmac-sha256[^\n]{0,300}?signature=(?P<value>[0-9a-f]{64})"),
    (
        "token",
        "x- token: key:",
        r"\bx-[\w-]{0,40}(?:token|key|secret|auth|signature|session)[\w-]{0,12}[\"']?[ \t]*[:=,][ \t]*[\"']?(?P<random>[\w+/=.~-]{12,}+)",
    ),
    (
        "token",
        "private-token ocp-apim",
        r"(?:private-token|job-token|deploy-token|ocp-apim-subscription-key|api-?key|apikey)[\"']?[ \t]*[:=,][ \t]*[\"']?(?P<random>[\w+/=.~-]{12,}+)",
    ),
    (
        "token",
        "_auth",
        r"(?:(?<=[/:\s])|(?m:^))_(?:auth|authtoken|password)[ \t]*+=[ \t]*+[\"']?(?P<mixed>[\w+/=.-]{8,}+)",
    ),
    (
        "token",
        "requests auth",
        r"npm(?:[ \t]\w+){1,3}[ \t]//[^\s]{1,80}:_authtoken[ =](?P<value>[\w.-]{8,}+)",
    ),
    # Command lines
    (
        "password",
        "-u --user --proxy-user",
        r"(?:(?<=\s)-u|--user|--proxy-user)[ =]?[\"']?(?:[^\s:\"'<>$/\\%{]{1,80}+\\)?[^\s:\"'<>$/]{1,80}+:(?P<value>[^\s\"'<>$]{4,200}+)",
    ),
    ("password", "sshpass", rf"sshpass\s++(?:-\w+\s++){{0,3}}?-p[ \t]*+{_Q}(?P<value>{_V})"),
    (
        "password",
        "mysql mariadb",
        r"(?:mysql|mariadb)(?:dump|admin|import|show|-dump|-admin)?\s(?:[^\n|;]{0,120}?\s)?-p[\"']?(?P<value>[^\s\"'<>$]{4,200}+)",
    ),
    (
        "password",
        "-",
        rf"(?<![\w-])(?:--?|/)(?:[a-z][\w-]{{0,30}}-)?(?:password|passwd|passphrase|pass|passwort|pwd|pw|psk|storepass|keypass|srcstorepass|deststorepass|requirepass)(?:-?(?:value|plain))?"
        rf"(?:[=:][ \t]?|[ \t]{{1,8}}){_Q}(?P<word>(?![-$<{{\[(/.]){_V}){_END}",
    ),
    (
        "token",
        "-",
        r"(?<![\w-])--?(?:[a-z][\w-]{0,30}-)?(?:token|secret|api-?key|access-?key|secret-?key|auth-?key|auth-?token|client-?secret|license-?key|account-?key|key-?secret|psk|secret-?access-?key)"
        r"(?:[=:][ \t]?|[ \t]{1,8})[\"']?(?P<random>(?![-$<{\[(/.])[^\s\"'`<>|;&]{8,300}+)",
    ),
    (
        "password",
        "-p -w -a -P -k -x pw",
        r"\b(?:docker|podman|helm|buildah|skopeo|crane|oras|nerdctl|oc|az|cf|ibmcloud|mongo(?:sh|dump|restore|import|export)?|ldap\w{3,10}|redis-cli|rdesktop|xfreerdp"
        r"|plink|pscp|psftp|psexec|sqlcmd|bcp|zip|unzip|ipmitool|vncviewer|rabbitmqctl|clickhouse-client|cqlsh|influx|smbmap|crackmapexec|evil-winrm|isql|osql|wmic|impdp|iscsiadm"
        r"|htpasswd|lftp|ncftp|vault|doctl|snowsql|impala-shell|beeline|tsql|gpg2?|openssl|cadaver|megatools|ansible\w{0,9}|mount|7z)\b[^\n|;]{0,160}?[ \t]"
        rf"(?:-(?:p|pw|w|a|pass|password)[ \t]{{1,4}}|--pass[ =]|/p:|-p(?=[^ \t:\n-]{{6}})){_Q}(?P<mixed>(?![-$<{{\[(/.]){_V})",
    ),
    (
        "password",
        "docker podman helm ldap redis-cli mongo plink pscp psexec sqlcmd ipmitool zip rdesktop freerdp login",
        r"\b(?:(?:docker|podman|helm|oc|az|cf|ibmcloud|buildah|skopeo|nerdctl)\b[^\n|;]{0,60}?\blogin\b|mongo(?:sh|dump|restore)?|ldap\w{3,10}|redis-cli|plink|pscp|psexec|sqlcmd|ipmitool|rdesktop|xfreerdp|zip|cqlsh|evil-winrm|vncviewer)\b[^\n|;]{0,160}?[ \t](?:-(?:p|pw|w|a)[ \t]{1,4}|/p:)"
        rf"{_Q}(?P<word>(?![-$<{{\[(/.]|\d{{1,5}}\b){_V}){_END}",
    ),
    (
        "password",
        "-u --user",
        rf"(?m:^)(?![^\n]{{0,80}}(?:mysql|mariadb))[^\n|;]{{0,120}}?[ \t](?:-u|--user(?:name)?)[ =]?[\"']?[\w.@\\-]{{1,60}}[\"']?[ \t][^\n|;]{{0,60}}?(?<=[ \t])(?:-p|-pw|--pass)[ =]{_Q}(?P<word>(?![-$<{{\[(/.]|\d{{1,5}}\b){_V})",
    ),
    (
        "password",
        "env arg set param from-literal build-arg -e",
        rf"(?:(?m:^)[ \t]*(?:env|setx|setenv|param|config)|\b(?:configure|config)[ \t]set|--(?:from-literal|set|set-string|env|build-arg|var|variable)[ =]?|[ \t]-e)[ \t]*[\"']?[\w.-]{{0,60}}?{_CALLED}[\w-]{{0,10}}(?:[ \t]{{1,4}}|=){_Q}(?P<word>(?![$<{{]){_V})",
    ),
    (
        "password",
        "net use user /pass",
        r"\bnet[ \t]{1,3}use[ \t][^\n]{0,80}?\\\\[^\s\"']{1,120}[\"']?[ \t]{1,4}[\"']?(?P<value>(?![/*])[^\s\"'/]{4,100}+)",
    ),
    (
        "password",
        "net use",
        r"\bnet[ \t]{1,3}use[ \t][^\n]{0,160}?/user:\S{1,80}[ \t]{1,4}[\"']?(?P<value>(?![/*])[^\s\"']{4,100}+)",
    ),
    (
        "password",
        "net user",
        r"\bnet[ \t]{1,3}user[ \t]{1,3}[\"']?[\w.$-]{1,60}[\"']?[ \t]{1,3}[\"']?(?P<value>(?![/*])[^\s\"'/]{4,100}+)[\"']?(?=[ \t]+/|[ \t]*(?:\n|$))",
    ),
    (
        "password",
        "/pass: /password: /p:",
        rf"(?<=\s)/(?:pass(?:word)?|p|rp|pw):{_Q}(?P<value>(?![*$<%]){_V})",
    ),
    ("password", "pass:", r"-pass(?:in|out|word)?[ \t]{1,4}[\"']?pass:(?P<value>[^\s\"']{3,100}+)"),
    (
        "password",
        "-storepass -keypass",
        rf"-(?:src|dest)?(?:store|key)pass[ \t]{{1,4}}{_Q}(?P<value>(?![-$<]){_V})",
    ),
    (
        "password",
        "chpasswd sudo",
        r"echo[ \t]{1,4}(?:-n[ \t]{1,4})?[\"']?(?:[\w.-]{1,40}:)?(?P<value>[^\s\"'|$]{4,100}+)[\"']?[ \t]*\|[ \t]*(?:sudo[ \t]+)?(?:chpasswd|sudo[ \t]+-s|passwd[ \t]+--stdin|docker[ \t]+login|gh[ \t]+auth|base64|openssl|kinit)",
    ),
    (
        "password",
        "htpasswd",
        r"htpasswd[ \t]{1,4}-\w*b\w*[ \t]{1,4}(?:-\w+[ \t]{1,4}){0,3}\S{1,120}[ \t]{1,4}[\w.@-]{1,60}[ \t]{1,4}[\"']?(?P<value>[^\s\"']{4,100}+)",
    ),
    (
        "password",
        "wpa_passphrase",
        rf"wpa_passphrase[ \t]{{1,4}}(?:\"[^\"\n]{{1,40}}\"|\S{{1,40}})[ \t]{{1,4}}{_Q}(?P<value>{_V})",
    ),
    ("password", "password", r"\bnmcli[^\n]{0,120}?\bpassword[ \t]{1,4}[\"']?(?P<value>[^\s\"']{4,100}+)"),
    (
        "password",
        "snmp",
        rf"\bsnmp\w{{2,10}}[ \t][^\n]{{0,120}}?[ \t]-x[ \t]{{1,4}}{_Q}(?P<value>(?!aes|des){_V})",
    ),
    (
        "password",
        "snmp",
        rf"\bsnmp\w{{2,10}}[ \t][^\n]{{0,120}}?[ \t]-a[ \t]{{1,4}}{_Q}(?P<value>(?!md5|sha|aes|des){_V})",
    ),
    (
        "password",
        "snmp",
        rf"\bsnmp\w{{2,10}}[ \t][^\n]{{0,80}}?[ \t]-c[ \t]{{0,4}}{_Q}(?P<value>(?!(?:public)\b){_V})",
    ),
    (
        "token",
        "login",
        r"\b(?:vault|heroku|flyctl|wrangler|huggingface-cli|hf|wandb|npm|gh|glab|doctl|railway|infisical)[ \t][^\n]{0,40}?login[ \t][^\n]{0,40}?(?P<mixed>(?<=[ \t])[\w.-]{20,}+)",
    ),
    (
        "password",
        "securestring",
        r"convertto-securestring[ \t]{1,4}(?:-(?:string|asplaintext|force)[ \t]{1,4}){0,3}(?:\"(?P<value>[^\"$\n]{3,200}+)\"|'(?P<value2>[^'\n]{3,200}+)'|(?P<value3>[^\s\"'$(-][^\s\"']{3,100}+))",
    ),
    (
        "password",
        "credential",
        r"(?:networkcredential|pscredential|usernamepassword\w{0,20}|basicauth|basic_auth|httpbasicauth|credentials?|basicawscredentials|azurenamedkeycredential|azurekeycredential)[ \t]*\([^()\n]{0,80}?[\"'](?P<mixed>[^\"'\n]{6,200}+)[\"'][ \t]*[,)]",
    ),
    # Code
    (
        "password",
        "password( passwd( passphrase( secret( token( apikey( api_key( pwd( key(",
        r"(?:password|passwd|passphrase|secret|token|api_?key|pwd|secret_?key|access_?key|with_?key)\([ \t]*[\"'](?P<mixed>[^\"'\n$%{<]{8,300}+)[\"'][ \t]*[,)]",
    ),
    (
        "password",
        "define( env( getenv environ default setting set( config( put( property(",
        rf"\([ \t]*[\"'][\w.-]{{0,40}}{_CALLED}[\w-]{{0,8}}[\"'][ \t]*,[ \t]*[\"'](?P<generated>[^\"'\n$%{{<]{{6,300}}+)[\"']",
    ),
    (
        "password",
        "auth connect login",
        r"(?:\bauth[ \t]*=[ \t]*|\.login|connect|getconnection|pdo|\.auth|\.authenticate|basic_auth|basicauth|set_auth)[ \t]*\((?:[^(),\n]{1,80},[ \t]*){1,3}[\"'](?P<generated>[^\"'\n$%{<]{8,200}+)[\"']",
    ),
    (
        "password",
        "password pass secret token key",
        r"(?m:^)[ \t]*(?:\w{0,20}(?:password|passwd|pass|secret|token|api_?key))[ \t]{1,4}(?:\"(?P<mixed>[^\"\n$<%{ ]{6,200}+)\"|'(?P<mixed2>[^'\n$<%{ ]{6,200}+)')[ \t]*(?:;|(?m:$))",
    ),
    (
        "password",
        "identified",
        r"identified[ \t]{1,4}(?:with[ \t]+\S{1,40}[ \t]+)?(?:by|as)[ \t]{1,4}(?:password[ \t]+)?(?:(?<=by )[\"'](?P<value>(?<=[^\n].)[^\"'\n]{3,200}+)[\"'](?=[ \t]*(?:;|,|(?m:$)|\"|with|require|account|password|default))|(?P<mixed>[^\s\"';]{6,100}+))",
    ),
    (
        "password",
        "password",
        r"(?:with|encrypted|login|user|role|unencrypted)[ \t]{1,4}[^\n;]{0,80}?\bpassword[ \t]{1,4}[\"'](?P<value>[^\"'\n]{3,200}+)[\"']",
    ),
    ("password", "password(", r"\bpassword\([ \t]*[\"'](?P<generated>[^\"'\n]{4,200}+)[\"']"),
    (
        "password",
        "pwdencrypt pgp_sym crypt( aes_encrypt",
        r"(?:pgp_sym_(?:en|de)crypt(?:_bytea)?|aes_(?:en|de)crypt|crypt|pwdencrypt)\((?:[^(),\n]{1,80},[ \t]*)?[\"'](?P<mixed>[^\"'\n]{6,200}+)[\"']",
    ),
    # Markup and data
    (
        "password",
        "</",
        r"<(?:[\w.-]{0,20}:)?[\w.-]{0,30}?(?:password|passwd|passphrase|pwd|secret|api_?key|token|clientkey|privatekey|accesskey|secretkey|sharedkey|keymaterial|(?<=<)pass)(?:[ \t][^<>\n]{0,100})?>\s{0,40}(?:<!\[cdata\[|<value>|<string>)?\s{0,40}(?P<value>[^\s<>\[\]]{4,600}+)\s{0,40}(?:\]\]>)?</",
    ),
    (
        "password",
        "value name= key= id=",
        rf"\b(?:name|key|id|property|parametername|option|setting)[ \t]*=[ \t]*[\"'][^\"'<>\n]{{0,60}}?{_CALLED}[\w.-]{{0,10}}[\"'][^<>\n]{{0,80}}?\bvalue[ \t]*=[ \t]*[\"'](?P<value>[^\"'<>\n]{{4,600}}+)[\"']",
    ),
    (
        "password",
        "value",
        rf"\bvalue[ \t]*=[ \t]*[\"'](?P<value>[^\"'<>\n]{{4,600}}+)[\"'][^<>\n]{{0,60}}?\b(?:name|key|id)[ \t]*=[ \t]*[\"'][^\"'<>\n]{{0,60}}?{_CALLED}[\w.-]{{0,10}}[\"']",
    ),
    (
        "password",
        "</",
        rf"\b(?:name|key|id)[ \t]*=[ \t]*[\"'][^\"'<>\n]{{0,60}}?{_CALLED}[\w.-]{{0,10}}[\"'][^<>\n]{{0,60}}?>\s{{0,40}}(?P<value>[^\s<>]{{4,600}}+)\s{{0,40}}</",
    ),
    (
        "password",
        "<key> </td> </th> </dt> </b> </label>",
        rf"<(?:key|td|th|dt|b|strong|label|li)(?:[ \t][^<>\n]{{0,60}})?>[^<>\n]{{0,40}}?{_CALLED}[^<>\n]{{0,12}}</(?:key|td|th|dt|b|strong|label)>:?\s{{0,60}}(?:<(?:string|td|dd|span|code|i|tt)(?:[ \t][^<>\n]{{0,60}})?>\s{{0,20}}){{1,2}}(?P<value>[^\s<>]{{4,600}}+)",
    ),
    (
        "password",
        "name key variable",
        rf"[\"']?\b(?:name|key|parameterkey|variable|field|setting)[\"']?[ \t]*[:=][ \t]*[\"']?[\w./-]{{0,60}}?{_CALLED}[\w-]{{0,10}}[\"']?[ \t]*(?:,[ \t]*|\n[ \t]*|,[ \t]*\n[ \t]*)[\"']?(?:\w{{0,16}}value|default)[\"']?[ \t]*[:=][ \t]*(?:\"(?P<value>[^\"\n]{{4,600}}+)\"|'(?P<value2>[^'\n]{{4,600}}+)'|(?P<word>[a-z]{{6,40}}+)(?=[ \t]*(?:\n|\Z))|(?P<mixed>[^\s\"',;<>\[\](){{}}$]{{6,600}}+))",
    ),
    (
        "password",
        "variable",
        rf"\bvariable[ \t]+[\"'][\w-]{{0,40}}{_CALLED}[\w-]{{0,10}}[\"'][ \t]*\{{[^{{}}]{{0,300}}?\bdefault[ \t]*=[ \t]*\"(?P<value>[^\"\n]{{4,600}}+)\"",
    ),
    (
        "password",
        "| >",
        rf"(?m:^)[ \t-]*[\"']?[\w.-]{{0,40}}?(?:{_CALLED})[\w-]{{0,10}}[\"']?[ \t]*:[ \t]*(?:!\w+[ \t]+)?[|>][+-]?\d?[+-]?[ \t]*\n[ \t]+(?P<value>[^\s<${{][^\s]{{3,600}}+)(?=[ \t]*(?:\n|\Z))",
    ),
    (
        "password",
        ":",
        rf"(?:{_CALLED})[*\"'`_]{{0,3}}:[*_]{{0,3}}[ \t]*\n(?:[ \t]*\n)?[ \t>*-]{{0,8}}[`\"']?(?P<generated>[^\s`\"'<$]{{6,200}}+)[`\"']?[ \t]*(?=\n|\Z)",
    ),
    ("key", '"kty" kty', r"[\"'](?:d|p|q|dp|dq|qi|k)[\"'][ \t]*:[ \t]*[\"'](?P<value>[\w-]{20,}+)[\"']"),
    ("key", "rsakeyvalue <d>", r"<(?:d|p|q|dp|dq|inverseq)>\s*(?P<value>[a-z0-9+/=\s]{40,}+)</"),
    (
        "Azure key",
        "accountkey sharedaccesskey",
        r"(?:accountkey|sharedaccesskey)=(?P<value>[a-z0-9+/]{40,}+=*+)",
    ),
    (
        "docker login",
        "auth",
        r"[\"'](?:auth|identitytoken|registrytoken|_auth|\.dockerconfigjson|\.dockercfg)[\"']?[ \t]*:[ \t]*[\"']?(?P<mixed>[a-z0-9+/_=-]{12,}+)",
    ),
    (
        "docker login",
        "dockerconfigjson dockercfg",
        r"\.dockerc(?:onfigjson|fg)[\"']?:[ \t]*[\"']?(?P<value>[a-z0-9+/=]{20,}+)",
    ),
    ("kubeconfig key", "-key-data", r"client-key-data[\"']?:[ \t]*[\"']?(?P<value>[a-z0-9+/=]{20,}+)"),
    # Files
    (
        "password",
        "machine default",
        r"(?:machine\s+\S{1,120}|\bdefault)\s+(?:login|user)\s+\S{1,120}\s+(?:account\s+\S{1,80}\s+)?(?:password|passwd)\s+(?P<value>[^\s]{3,200}+)",
    ),
    (
        "password",
        ":",
        r"(?m:^)(?:\*|[\w-]{0,60}[.\w-]{0,80}|\[[0-9a-f:]+\]):(?:\*|[1-6]\d{3,4}):(?:\*|[\w.-]{1,60}):(?:\*|[\w.@-]{1,60}):(?P<value>[^\s:]{3,200}+)(?m:$)",
    ),
    ("password hash", ":", r"(?m:^)[a-z_][\w.-]{0,31}\$?:(?P<value>(?![x*!]{1,2}:)[./0-9a-z]{13}):\d{0,6}:"),
    ("password hash", ":", r"(?m:^)[a-z_][\w.@-]{0,60}:(?P<value>(?=[./a-z]*\d)[./0-9a-z]{13})(?m:$)"),
    (
        "password hash",
        ":::",
        r"(?m:^)[\w.\\$ -]{1,60}:\d{1,10}:(?P<value>(?:[0-9a-f]{32}|\w{1,20}):[0-9a-f]{32}):::",
    ),
    ("password hash", "*", r"[\"'\s=:](?P<value>\*[0-9a-f]{40})(?![0-9a-f])"),
    (
        "password",
        "enable username line user",
        r"(?m:^)[ \t]*(?:enable|username[ \t]\S{1,60}(?:[ \t]privilege[ \t]\d{1,2})?)[ \t](?:algorithm-type[ \t]\S+[ \t])?(?:secret|password)(?:[ \t]level[ \t]\d{1,2})?(?:[ \t](?:0|4|5|7|8|9|encrypted|sha512))?[ \t](?P<value>[^\s]{4,200}+)",
    ),
    (
        "password",
        "password key secret",
        r"(?m:^)[ \t]*(?:(?:neighbor|standby|ppp|ip|ipv6|ntp|tacacs|tacacs-server|radius|radius-server|crypto|isakmp|server|line|aaa|vrrp|glbp|area|key|wlan|ssid|mgmtuser|tunnel-group|ikev[12]|set|snmp|ldap-login|no|bgp|isis|authentication|client|user|wpa-psk|security|pre-shared-key|local|remote)\b[^\n]{0,120}?[ \t])?"
        r"(?:password|secret|md5|key-string|authentication(?:-key)?(?:[ \t]text)?|isakmp[ \t]key|pre-shared-key(?:[ \t](?:local|remote|ascii-text|hexadecimal|address[ \t]\S+[ \t]key))?|psk|key|ascii|passphrase|wpa-psk)[ \t](?:(?:0|5|6|7|8|9|hex|ascii|text|clear|encrypted|cleartext)[ \t]{1,2})?[\"']?(?P<mixed>[^\s\"'=:;,(){}<>]{6,200}+)[\"']?;?(?=[ \t]*(?:\n|\Z|address|encrypted|timeout|ttl|role))",
    ),
    (
        "password",
        "community",
        r"snmp(?:-server)?[ \t](?:set[ \t])?community[ \t](?:[0-9][ \t])?[\"']?(?P<value>(?!(?:name|string|public)\b)[^\s\"'{};]{4,100}+)",
    ),
    (
        "password",
        "community com2sec",
        r"(?m:^)[ \t]*(?:r[ow]community6?[ \t]{1,4}|com2sec6?[ \t]{1,4}\S{1,40}[ \t]{1,4}\S{1,60}[ \t]{1,4}|trapcommunity[ \t]+|trapsink[ \t]+\S+[ \t]+)[\"']?(?P<value>(?!public\b)[^\s\"']{4,100}+)",
    ),
    (
        "password",
        "createuser",
        r"createuser[ \t]+(?:-e[ \t]+\S+[ \t]+)?\S{1,60}[ \t]+(?:md5|sha\S{0,8})[ \t]+[\"']?(?P<value>[^\s\"']{4,100}+)",
    ),
    (
        "password",
        "createuser aes des",
        r"createuser[^\n]{0,160}?[ \t](?:aes|des)\S{0,4}[ \t]+[\"']?(?P<value>[^\s\"']{4,100}+)",
    ),
    (
        "password",
        "psk eap xauth",
        r":[ \t]+(?:psk|eap|xauth|ntlm)[ \t]+[\"'](?P<value>[^\"'\n]{4,200}+)[\"']",
    ),
    (
        "password",
        "requirepass masterauth bindpw rootpw rootdn password passwd pass pw",
        r"(?m:^)[ \t]*(?:requirepass|masterauth|bindpw|rootpw|olcrootpw:?|sasl-?passwd|smtp_?pass\w{0,4}|passwd|oper|identify|auth-pass|rootpwmoddn)[ \t]+[\"']?(?P<value>(?![<$=:{])[^\s\"'=:]{4,200}+)[\"']?(?=[ \t]*(?:\n|\Z))",
    ),
    (
        "password",
        "poll user imap",
        r"(?:poll|user(?:name)?|account)[ \t][^\n]{1,120}?[ \t](?:pass(?:word)?)[ \t]+[\"']?(?P<mixed>[^\s\"',;]{5,100}+)",
    ),
    (
        "password",
        ":587 :465 :25",
        r"(?m:^)\[?[\w.-]{3,80}\]?:(?:587|465|25)[ \t]+[^\s:]{1,80}:(?P<value>[^\s]{4,100}+)(?m:$)",
    ),
    ("password", "password", r"cleartext-password[ \t]*:=[ \t]*[\"'](?P<value>[^\"'\n]{3,100}+)"),
    ("password", "password\nv", r"(?m:^)pass(?:word|phrase)\nv \d+\n(?P<value>\S{3,200})\n"),
    ("password", "auth-user-pass", r"<auth-user-pass>\s*\n\S{1,80}\n(?P<value>\S{4,100})\n"),
    (
        "password",
        "* ",
        r"(?m:^)[\"']?[\w@.-]{1,60}[\"']?[ \t]+(?:\*|pptpd|l2tpd|\w+)[ \t]+\"(?P<mixed>[^\"\n]{5,100})\"(?:[ \t]+\*|[ \t]*(?m:$))",
    ),
    (
        "password",
        "nickserv identify",
        r"(?:nickserv|identify)[ \t]+(?:identify[ \t]+)?(?:\w+[ \t]+)?(?P<mixed>[^\s\"'<]{6,80}+)(?=[ \t]*(?:\n|\Z|[\"']))",
    ),
    (
        "password",
        "password passwd passphrase pass pwd pw secret token",
        r"\b[\w./-]{0,40}?(?:password|passwd|passphrase|pass|pwd|pw|secret|token|(?:secret|api|access)[_-]?key)[ \t]{1,8}(?:--?[a-z]{2,20}[ \t]{1,4}|/d[ \t]{1,4})?[\"'`(]?(?P<generated>[^\s\"'`<>,;()=]{8,200}+)",
    ),
    (
        "password",
        "password passwd passphrase pass pw token login creds credentials",
        r"\b(?:password|passwd|passphrase|pw|token|logins?|creds|credentials)\b[^\n:=]{1,40}:[ \t]{1,4}[\"'`]?(?P<generated>[^\s\"'`<>,;()]{8,200}+)",
    ),
    ("password", "rootpw", r"rootpw[ \t]+(?:--?\w+[ \t]+)*(?P<mixed>[^\s\"']{5,200}+)"),
    ("password", "auth", r"\bauth[ \t]+[\w.@-]{2,40}:(?P<mixed>[^\s\"':]{6,100}+)"),
    ("password", "/rp", r"[ \t]/rp[ \t]+[\"']?(?P<mixed>[^\s\"']{5,100}+)"),
    ("password", "-u", r"[ \t]-u[ \t]?[\"']?[\w.@-]{1,60},(?P<mixed>[^\s\"',]{5,100}+)"),
    (
        "password",
        ":",
        rf"(?m:^)[ \t]*:[\w ]{{0,20}}?{_CALLED}:[ \t]+(?P<mixed>[^\s\"'<]{{6,200}}+)[ \t]*(?m:$)",
    ),
    (
        "key",
        "define",
        r"define\([ \t]*[\"'][\w]{0,30}(?:key|salt)[\"'][ \t]*,[ \t]*[\"'](?P<random>[^\"'\n]{16,200}+)[\"']",
    ),
    (
        "token",
        "secret",
        r"\bsecrets?[ \t](?:set|put|add|create)[ \t]+[\w./-]{1,60}[ \t]*(?:--body|--value|--secret-string|-b|-v|=)?[ =]?[\"']?(?P<mixed>[^\s\"']{8,300}+)",
    ),
    (
        "private key",
        "private accounts wallet signer",
        r"(?:private|accounts?|wallet|signer|deployer)[^\n]{0,60}?[\"' \[](?:0x)?(?P<value>[0-9a-f]{64})(?![0-9a-f])",
    ),
    (
        "password",
        "|| ?? :-  or ",
        rf"{_CALLED}[\w-]{{0,10}}[\"'\])]{{0,3}}[ \t]*(?:\|\||\?\?|:-|\bor\b)[ \t]*[\"']?(?P<generated>[^\s\"'`{{}}]{{8,300}}+)",
    ),
    (
        "password",
        "password",
        r"type=[\"']?password[\"']?[^<>\n]{0,80}[ \t]value=[\"'](?P<value>[^\"'<>\n]{4,200}+)[\"']",
    ),
    (
        "password",
        "password passphrase passwd pass",
        r"\b(?:password|passphrase|passwd|pass)[ \t]+(?:for|of|on|to)[ \t][^\n:.]{1,40}?[ \t](?:is|was)[ \t:]+[\"'`]?(?P<generated>[^\s\"'`<>,;()]{6,200}+)",
    ),
    # Prose
    (
        "password",
        "password passphrase passwd pass pin pw code",
        r"\b(?:password|passwd|passphrase|passcode|pass|pw|pin)[\"'`*]{0,2}[ \t]+(?:is|was|are|to|of|will[ \t]be|set[ \t]to)[ \t:]+(?:now[ \t]+|still[ \t]+)?[\"'`*(]{0,2}(?P<generated>[^\s\"'`<>,;()]{6,200}+)",
    ),
    (
        "password",
        "password passphrase passwd pass pin",
        r"\b(?:password|passwd|passphrase|passcode)[ \t]+(?:is|was|to)[ \t:]+(?:set[ \t]+to[ \t]+)?(?:\"(?P<secretword>[^\"\s]{5,80})\"|'(?P<secretword2>[^'\s]{5,80})'|`(?P<secretword3>[^`\s]{5,80})`)",
    ),
    (
        "token",
        "token key secret",
        r"\b(?:token|(?:api|access|secret|private)[ _-]?key|secret)[ \t]+(?:is|was|to)[ \t:]+(?:now[ \t]+)?[\"'`(]{0,2}(?P<random>[\w+/=.~-]{16,}+)",
    ),
    (
        "password",
        "/ :",
        r"\b(?:credentials?|creds|login(?:s)?|log(?:ged)?[ -]?in|sign[ -]?in|user(?:name)?[ \t]*/[ \t]*pass(?:word)?|accounts?)\b(?:[ \t]+(?:with|as|is|are|using|for[ \t]\w+))?[ \t]*[:=]?[ \t]*[`\"']?[\w.@-]{2,60}[`\"']?[ \t]*[/:|][ \t]*[`\"']?(?P<generated>[^\s`\"'<>,;()/]{6,100}+)",
    ),
)
"""Where a value stands that is a secret. Its group says what it must be for that: `value` what says nothing of
where a secret will stand, `mixed` letters and digits, `random` a long mixture, `generated` what no word is,
`word` and `secretword` no word of a sentence. In small letters, as the text is that they are looked for in."""
