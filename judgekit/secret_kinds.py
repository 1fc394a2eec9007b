"""The kinds of secrets that are known by their form: what each is called, and the pattern that finds it.

A pattern begins with a literal, so that looking for it costs a scan of memory and no more; that nothing
stands before it that would make it part of a longer word is checked by `judgekit.redaction`. None of them
can take time that grows faster than the text.
"""

from __future__ import annotations

import re
from typing import Final

_BASE64 = r"[A-Za-z0-9+/=]"
_GAP = r"(?:\s|\\+[nrt]|[\"'+,\\])"  # between the lines of a key, also of one that stands in a string
_HEADER = r"(?:Proc-Type|DEK-Info|Comment|Version|Charset|Hash): [^\n\\]{0,100}"
# The last line of a key is short: what is neither padded nor before the end may as well be a word of prose.
_LAST = rf"(?:[A-Za-z0-9+/]{{1,14}}={{1,2}}|{_BASE64}{{1,15}}+(?={_GAP}*+(?:-----END|\Z)))"

BLOCKS: Final = (
    # Only what looks like base64 belongs to a key: whoever opens a block cannot hide prose in it.
    re.compile(
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        rf"(?:{_GAP}*+{_HEADER}){{0,6}}+(?:{_GAP}*+{_BASE64}{{16,}}+)*+(?:{_GAP}*+{_LAST})?+"
        rf"(?:{_GAP}*+-----END (?:[A-Z0-9]{{1,12}} ){{0,3}}PRIVATE KEY(?: BLOCK)?-----)?+"
    ),
    re.compile(rf"Private-Lines: \d{{1,4}}\s*+(?:{_BASE64}{{16,}}+\s*+)*+{_LAST}?+"),
)
"""Private keys, header to end."""

FORMS: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("Anthropic key", r"sk-ant-[A-Za-z0-9_-]{16,}+"),
        ("OpenAI key", r"sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{16,}+"),
        ("OpenRouter key", r"sk-or-v1-[a-f0-9]{32,}+"),
        ("Langfuse key", r"sk-lf-[a-f0-9-]{32,}+"),
        ("model provider key", r"sk-[A-Za-z0-9]{32,}+"),
        ("model provider key", r"(?:gsk_|pplx-|xai-|csk-|fw_|r8_|tgp_v1_)[A-Za-z0-9_-]{24,}+"),
        ("Hugging Face token", r"hf_[A-Za-z0-9]{30,}+"),
        ("GitHub token", r"github_pat_[A-Za-z0-9_]{22,}+"),
        ("GitLab token", r"gl(?:pat|dt|ft|soat|rt|cbt|ptt|imt|agent|oas|ffct)-[A-Za-z0-9_.-]{20,}+"),
        ("Google API key", r"AIza[A-Za-z0-9_-]{35}"),
        ("Google client secret", r"GOCSPX-[A-Za-z0-9_-]{20,}+"),
        ("Google access token", r"ya29\.[A-Za-z0-9_-]{20,}+"),
        ("Slack token", r"xapp-\d-[A-Z0-9]{6,}+-\d{6,}+-[a-f0-9]{32,}+"),
        ("Slack token", r"xox[abceoprs](?:\.xox[abceoprs])?+-[A-Za-z0-9-]{20,}+"),
        ("Stripe key", r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+"),
        ("Stripe webhook secret", r"whsec_[A-Za-z0-9+/=]{24,}+"),
        ("npm token", r"npm_[A-Za-z0-9]{36,}+"),
        ("PyPI token", r"pypi-[A-Za-z0-9_-]{60,}+"),
        ("RubyGems key", r"rubygems_[a-f0-9]{48}"),
        ("Docker token", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{24,}+"),
        ("DigitalOcean token", r"do[opr]_v1_[a-f0-9]{64}"),
        ("Vault token", r"hv[bsr]\.[A-Za-z0-9_-]{24,}+"),
        ("Databricks token", r"dapi[a-f0-9]{32}"),
        ("Shopify token", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
        ("Grafana token", r"gl(?:c_[A-Za-z0-9+/=]{32,}+|sa_[A-Za-z0-9]{32}_[a-f0-9]{8})"),
        ("New Relic key", r"NRAK-[A-Z0-9]{27}"),
        ("Linear key", r"lin_api_[A-Za-z0-9]{32,}+"),
        ("Notion token", r"ntn_[A-Za-z0-9]{40,}+"),
        ("Postman key", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
        ("Sentry token", r"sntry[su]_[A-Za-z0-9+/=_-]{40,}+"),
        ("Supabase key", r"sb(?:p_[a-f0-9]{40}|_secret_[A-Za-z0-9_-]{20,}+)"),
        ("Mailgun key", r"key-[a-f0-9]{32}(?![a-f0-9])"),
        ("Atlassian token", r"ATATT3[A-Za-z0-9_=-]{60,}+"),
        ("Artifactory key", r"AKCp[A-Za-z0-9]{40,}+"),
        ("Terraform token", r"(?<![A-Za-z0-9])[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}+"),
        ("Square token", r"sq0[a-z]{3}-[A-Za-z0-9_-]{22,}+"),
        ("age key", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
        (
            "webhook address",
            r"https://(?:discord(?:app)?\.com/api/webhooks/\d+|[\w.-]{1,80}\.webhook\.office)[\w/@.-]{20,}+",
        ),
        ("JSON web token", r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+){0,3}"),
    )
)
"""Beside the plugins of detect-secrets: younger kinds, and those of which its patterns take only a part."""

NAMED: Final = re.compile(
    r"(?=[apcstme])(?P<name>pass(?:word|wd|phrase|code)|(?<![a-z])pwd|credential|secret|token"
    r"|(?:api|access|auth|private|account|client|signing|encryption|master|shared|service)[_-]?key)"
    r"(?P<more>s?(?:[_-]?(?:id|value|key|prod|production|dev|test|staging|hash|\d{1,2}))?)"
    r"(?P<close>[\"'\]`*]{0,3})[ \t]{0,8}(?P<operator>:=|=>|==?+=?+|:(?!:))(?:\*\*)?+[ \t]{0,8}@?"
    r"(?P<value>\"[^\"\n]{4,300}+\"|'[^'\n]{4,300}+'|`[^`\n]{4,300}+`|[^\s\"'`,;<>\[\](){}]{4,300}+(?![\[({]))"
)
"""A value that is given under the name of a secret, in small letters; the value decides whether it is one."""

CARRIED: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("password", r"://[^\s/:@\"'<>]{0,80}+:(?P<value>[^\s/@\"'<>]{1,200}+)@"),
        (
            "password",
            r"(?:\s-u|--user|--proxy-user)[ =][\"']?[^\s:\"'<>$/]{1,80}+:(?P<value>[^\s\"'<>$]{4,200}+)",
        ),
        ("password", r"sshpass\s++-p[ \t]*+[\"']?(?P<value>[^\s\"'<>$]{4,200}+)"),
        (
            "password",
            r"mysql(?:dump|admin|import|show)?\s(?:[^\n|;]{0,120}?\s)?-p[\"']?(?P<value>[^\s\"'<>$]{4,200}+)",
        ),
        ("password", r"authorization[\"']?:[ \t]*+[\"']?basic[ \t]++(?P<value>[\w+/=-]{8,}+)"),
        (
            "password",
            r"<(?:\w{0,20}:)?(?:\w{0,20}password|\w{0,20}secret|api_?key)>(?P<value>[^\s<>]{4,200}+)</",
        ),
        ("token", r"authorization[\"']?:[ \t]*+[\"']?token[ \t]++(?P<value>[\w+/=-]{16,}+)"),
        ("token", r"bearer[ \t]++(?P<value>[\w~+/.=-]{16,}+)"),
        ("token", r"/:_auth(?:token)?[ \t]*+=[ \t]*+[\"']?(?P<value>[\w+/=.-]{8,}+)"),
        ("Azure key", r"(?:accountkey|sharedaccesskey)=(?P<value>[a-z0-9+/]{40,}+=*+)"),
        ("signature", r"[?&](?:sig|x-amz-signature|x-goog-signature)=(?P<value>[\w%+/=-]{32,}+)"),
    )
)
"""Where a value stands that is a secret whatever it looks like, in small letters."""
