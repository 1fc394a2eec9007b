"""The kinds of secrets that are known by their form, their name or their place: data for `judgekit.judging.redact`.

Each pattern stands behind the words of which a text must have one for it to match: looking for those costs a
scan of memory, and a pattern is compiled when a text first has one. That nothing stands before a secret that
would make it part of a longer word is checked where they are used. No pattern takes time that grows faster
than the text: repetitions are possessive or bounded.
"""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple


class SecretKind(NamedTuple):
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


def kinds(*kinds: tuple[str, str, str]) -> tuple[SecretKind, ...]:
    """Return kinds, each given as its name, its words with blanks between them, and its pattern."""
    return tuple(SecretKind(name, tuple(words.split(" ")), source) for name, words, source in kinds)


FORMS: Final = kinds(
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
    (
        "GitHub token",
        "ghp_ gho_ ghu_ ghs_ ghr_",
        r"gh[pousr]_(?=[A-Za-z]{0,30}\d)(?=\d{0,30}[A-Za-z])[A-Za-z0-9]{12,}+",
    ),
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
    r"(?P<gap>(?:\*\*|</(?:b|strong|em|i|code|label|dt)>)?[ \t]{0,40}+(?:\(?[ \t]{0,4}\\?(?:\n[ \t]{1,40})?(?=[\"'])|<(?:b|strong|em|i|code|dd)>)?)"
    r"(?:[\w.]{0,20}(?:secret\w{0,8}|string|bytes|some|password|fromhex|hexlify|decode|from|atob|new|of|hex)\()?+(?:[&!][\w!-]{1,30}[ \t]{1,4})?(?:[rbfun@$]{1,2}(?=[\"'`])|qq?(?=[({\[]))?(?:\"\"(?=\")|''(?='))?"
    r"(?P<value>\"[^\"\n]{4,600}+\"|'[^'\n]{4,600}+'|[(](?<=q[(])[^()\n]{4,600}+[)]|`[^`\n]{4,600}+`|[^\s\"'`,;<>\[\](){}]{4,600}+(?![\[({]))"
)
"""A value under a name, in small letters; name and value together decide whether it is a secret."""

ENDINGS: Final = frozenset(
    [
        "id",
        "value",
        "salt",
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

_WORDS: Final = (
    "pass|pwd|pswd|psk|secret|token|cred|key|auth|cookie|sess|salt|pepper|seed|hmac|jwt|signature|sig=|bearer|basic|digest|mnemonic|"
    "phrase|connstr|connect|kennwort|kenwort|zugang|losung|mot de|anmeld|identifiant|clave|palavra|parola|adgangs|salasana|losenord|"
    "wifi|wi-fi|wlan|network|pre-shared|preshared|contrase|senha|wachtwoord|haslo|mdp|login|logged in|log in|sign in|sign-in|identify|"
    "identified|default user|securestring|community|com2sec|createuser|crypt(|rootpw|bindpw|/p:|net use|net user|:::|:*:|otpauth|echo |"
    "admin|root:|root /|guest:|guest /|demo:|demo /|postgres|openssl|http |https |/private|vpn|ftp|ssh |rdp|smtp|imap|nas |router|"
    '\ttrue\t/|\tfalse\t/|snmp|sqlplus|oracle:|define(|code=|?t=|?k=|&t=|&k=|account:|account |accounts:|accounts |" *|* "| /rp|wallet|'
    "signer|deployer|/t/|<d>|kty|napo\u043b|\u043fapo|\u5bc6|\u30d1|\ube44|user/|poll |:587|:465|recovery|backup code|backup words|scratch|emergency|2fa|mfa"
)
WORDS: Final = tuple(_WORDS.split("|"))
PLACES: Final = tuple(
    map(
        re.compile,
        (
            r"machine[ \t]+[\w-]+\.",
            r" -[pwaxkucb](?:[ \w\"']|$)",
            r"\n-[pwaxkucb][ \w]",
            r"\t-[pwaxkucb]",
            r"://[^\s/]{0,80}[@:]",
            r":(?:[1-6]\d{3,4}:|[./\w]{13}(?:\n|:|\Z))",
            r"\*[0-9a-f]{40}",
            r"pw\b",
            r"pin\b",
            r"pat\b",
            r"sid\b",
            r"user \S",
        ),
    )
)
"""What, or one of `WORDS`, every line has in which `NAMED` or one of `secret_contexts.CARRIED` can begin: other lines are not looked at."""

CALLED: Final = (
    r"(?:password|passwd|passphrase|passcode|passwort|pwd|secret(?:[_-]?key)?|token|api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?key"
    r"|account[_-]?key|encryption[_-]?key|credentials?|(?:[_.-]|^)(?:pass|psk|pw))"
)
NOUN: Final = (
    r"(?:pass[ -]?(?:word|wd|phrase|code|wort|key)|passw|pwd|pw|kennwort|kenwort|zugangscode|losungswort|mots? de passe|mdp|contrasenas?|clave(?: de \w{2,12})?|senha"
    r"|palavra[ -]passe|wachtwoord|parola(?: d'ordine)?|losenord|adgangskode|salasana|haslo|napo\u043b\u044c|(?:wi-?fi|wlan|network|pre-?shared)[ -]?(?:key|code|schlussel)"
    r"|(?:s?ftp|smtp|imap|ssh|db|admin|root|vpn|wi-?fi|user|login|sudo|temp|default|my|your|our|user[ ][\w.@-]{2,40},?)[ ]pass)"
)
IS: Final = r"(?:is|was|are|ist|war|lautet|lautete|heisst|hei\u00dft|est|sera|es|era|e|is now|jest|reads|remains|(?:(?:set|changed?|reset|rotated|updated|geandert|gesetzt|cambiad[oa]|changee?)\b[^\n:=]{0,20}? )?(?:to|auf|en|a|zu))"
NOUNS: Final = "pass pwd pw kennwort kenwort zugangscode losungswort mdp contrasena clave senha palavra wachtwoord parola losenord adgangskode salasana haslo napo wifi wi-fi wlan network pre-shared preshared"
LOGIN: Final = r"(?:wi-?fi|wlan|vpn|s?ftp|ssh|rdp|smtp|imap|nas|router|credentials?|creds?|logins?|log(?:ged)?[ -]?in|sign(?:ed)?[ -]?in|user(?:name)?[ \t]*[/:+][ \t]*pass(?:word)?|users?/pw|zugangsdaten|zugang|anmeldung|anmeldedaten|benutzer/passwort|identifiants?|connexion|credenciales|acceso|accounts?)\b"
LOGIN_WORDS: Final = "wifi wi-fi wlan vpn ftp ssh rdp smtp imap nas router cred login log logged sign user zugang anmeld benutzer identifiant connexion credenciales acceso account"
CHOSEN: Final = (
    r"[\"'`*_(\[]{0,3}(?=[^\s\"'`<>,;()*]{0,60}[\d!#$%&+?@^~])(?P<chosen>[^\s\"'`<>,;()*]{6,100}+)"
)
USER: Final = r"[\"'`*]{0,2}[\w.@\\+-]{2,60}[\"'`*]{0,2}"
V: Final = r"[^\s\"'`<>|;&]{4,200}+"
Q: Final = r"[\"']?"
END: Final = r"(?=[\"'`]?[ \t]*(?:$|\n|[|;&<>]|-{1,2}[a-z]|/[a-z]|[\"'`]|https?:|[\w-]{1,60}[.@:/]|\\\n))"
