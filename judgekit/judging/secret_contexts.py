"""Where a value stands that is a secret: behind an option, in an address, a header, a file of settings, a sentence.

Data for `judgekit.judging.secret_search`, in small letters; what a pattern must be like says
`judgekit.judging.secret_kinds`.
"""

from __future__ import annotations

from typing import Final

from judgekit.judging.secret_kinds import (
    CALLED,
    CHOSEN,
    END,
    IS,
    LOGIN,
    LOGIN_WORDS,
    NOUN,
    NOUNS,
    USER,
    Q,
    V,
    kinds,
)

CARRIED: Final = kinds(
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
    ("password", "%", r"[ \t]-u[ \t]?[\"']?[\w\\/.@-]{1,60}%(?P<chosen>[^\s\"']{3,100})"),
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
    ("password", "sshpass", rf"sshpass\s++(?:-\w+\s++){{0,3}}?-p[ \t]*+{Q}(?P<value>{V})"),
    (
        "password",
        "mysql mariadb",
        r"(?:mysql|mariadb)(?:dump|admin|import|show|-dump|-admin)?\s(?:[^\n|;]{0,120}?\s)?-p[\"']?(?P<value>[^\s\"'<>$]{4,200}+)",
    ),
    (
        "password",
        "-",
        rf"(?<![\w-])(?:--?|/)(?:[a-z][\w-]{{0,30}}-)?(?:password|passwd|passphrase|pass|passwort|pwd|pw|psk|storepass|keypass|srcstorepass|deststorepass|requirepass)(?:-?(?:value|plain))?"
        rf"(?:[=:][ \t]?|[ \t]{{1,8}}){Q}(?:(?P<word>(?![-$<{{\[(/.]){V}){END}|(?P<chosen>(?![-$<{{\[(/]){V}))",
    ),
    (
        "password",
        "--",
        rf"--(?:[a-z][\w-]{{0,30}}-)?(?:password|passwd|passphrase|pass|pwd|pw|psk|token|secret|key)[\"']?[ \t]*(?:,[ \t]*\n?[ \t]*|\\?\n[ \t]*(?:-[ \t])?)[\"']?(?P<chosen>(?![-$<{{\[(/]){V})",
    ),
    (
        "token",
        "-",
        r"(?<![\w-])--?(?:[a-z][\w-]{0,30}-)?(?:token|secret|api-?key|access-?key|secret-?key|auth-?key|auth-?token|client-?secret|license-?key|account-?key|key-?secret|psk|secret-?access-?key)(?:-(?:string|value|text))?"
        r"(?:[=:][ \t]?|[ \t]{1,8})[\"']?(?P<random>(?![-$<{\[(/.])[^\s\"'`<>|;&]{8,300}+)",
    ),
    (
        "password",
        "-p -w -a -P -k -x pw",
        r"\b(?:docker|podman|helm|buildah|skopeo|crane|oras|nerdctl|oc|az|cf|ibmcloud|mongo(?:sh|dump|restore|import|export)?|ldap\w{3,10}|redis-cli|rdesktop|xfreerdp"
        r"|plink|pscp|psftp|psexec|sqlcmd|bcp|zip|unzip|ipmitool|vncviewer|rabbitmqctl|clickhouse-client|cqlsh|influx|smbmap|crackmapexec|evil-winrm|isql|osql|wmic|impdp|iscsiadm"
        r"|htpasswd|lftp|ncftp|vault|doctl|snowsql|impala-shell|beeline|tsql|gpg2?|openssl|cadaver|megatools|ansible\w{0,9}|mount|7z)\b[^\n|;]{0,160}?[ \t]"
        rf"(?:-(?:p|pw|w|a|pass|password)[ \t]{{1,4}}|--pass[ =]|/p:|-p(?=[^ \t:\n-]{{6}})){Q}(?P<mixed>(?![-$<{{\[(/.]){V})",
    ),
    (
        "password",
        "docker podman helm ldap redis-cli mongo plink pscp psexec sqlcmd ipmitool zip rdesktop freerdp login",
        r"\b(?:(?:docker|podman|helm|oc|az|cf|ibmcloud|buildah|skopeo|nerdctl)\b[^\n|;]{0,60}?\blogin\b|mongo(?:sh|dump|restore)?|ldap\w{3,10}|redis-cli|plink|pscp|psexec|sqlcmd|ipmitool|rdesktop|xfreerdp|zip|cqlsh|evil-winrm|vncviewer)\b[^\n|;]{0,160}?[ \t](?:-(?:p|pw|w|a)[ \t]{1,4}|/p:)"
        rf"{Q}(?P<word>(?![-$<{{\[(/.]|\d{{1,5}}\b){V}){END}",
    ),
    (
        "password",
        "-u --user",
        rf"(?m:^)(?![^\n]{{0,80}}(?:mysql|mariadb))[^\n|;]{{0,120}}?[ \t](?:-u|--user(?:name)?)[ =]?[\"']?[\w.@\\-]{{1,60}}[\"']?[ \t][^\n|;]{{0,60}}?(?<=[ \t])(?:-p|-pw|--pass)[ =]{Q}(?P<word>(?![-$<{{\[(/.]|\d{{1,5}}\b){V})",
    ),
    (
        "password",
        "env arg set param from-literal build-arg -e",
        rf"(?:(?m:^)[ \t]*(?:env|setx|setenv|param|config)|\b(?:configure|config)[ \t]set|--(?:from-literal|set|set-string|env|build-arg|var|variable)[ =]?|[ \t]-e)[ \t]*[\"']?[\w.-]{{0,60}}?{CALLED}[\w-]{{0,10}}(?:[ \t]{{1,4}}|=){Q}(?P<word>(?![$<{{]){V})",
    ),
    (
        "password",
        "net use user /pass",
        r"\bnet[ \t]{1,3}use[ \t][^\n]{0,80}?\\\\[^\s\"']{1,120}[\"']?[ \t]{1,4}[\"']?(?P<value>(?![/*])[^\s\"'/]{4,100}+)",
    ),
    (
        "password",
        "net use",
        r"\bnet[ \t]{1,3}use[ \t][^\n]{0,160}?/u(?:ser)?:\S{1,80}[ \t]{1,4}[\"']?(?P<value>(?![/*])[^\s\"']{4,100}+)",
    ),
    (
        "password",
        "net user",
        r"\bnet[ \t]{1,3}user[ \t]{1,3}[\"']?[\w.$-]{1,60}[\"']?[ \t]{1,3}[\"']?(?P<value>(?![/*])[^\s\"'/]{4,100}+)[\"']?(?=[ \t]+/|[ \t]*(?:\n|$))",
    ),
    (
        "password",
        "/pass: /password: /p:",
        rf"(?<=\s)/(?:pass(?:word)?|p|rp|pw):{Q}(?P<value>(?![*$<%]){V})",
    ),
    ("password", "pass:", r"-pass(?:in|out|word)?[ \t]{1,4}[\"']?pass:(?P<value>[^\s\"']{3,100}+)"),
    (
        "password",
        "-storepass -keypass",
        rf"-(?:src|dest)?(?:store|key)pass[ \t]{{1,4}}{Q}(?P<value>(?![-$<]){V})",
    ),
    (
        "password",
        "chpasswd sudo stdin auth kinit",
        r"echo[ \t]{1,4}(?:-n[ \t]{1,4})?[\"']?(?:[\w.-]{1,40}:)?(?P<value>[^\s\"'|$]{4,100}+)[\"']?[ \t]*\|[ \t]*(?:sudo[ \t]+)?(?:chpasswd|sudo[ \t]+-s|passwd[ \t]+--stdin|docker[ \t]+login|gh[ \t]+auth|openssl|kinit)",
    ),
    (
        "password",
        "htpasswd",
        r"htpasswd[ \t]{1,4}-\w*b\w*[ \t]{1,4}(?:-\w+[ \t]{1,4}){0,3}\S{1,120}[ \t]{1,4}[\w.@-]{1,60}[ \t]{1,4}[\"']?(?P<value>[^\s\"']{4,100}+)",
    ),
    (
        "password",
        "wpa_passphrase",
        rf"wpa_passphrase[ \t]{{1,4}}(?:\"[^\"\n]{{1,40}}\"|\S{{1,40}})[ \t]{{1,4}}{Q}(?P<value>{V})",
    ),
    ("password", "password", r"\bnmcli[^\n]{0,120}?\bpassword[ \t]{1,4}[\"']?(?P<value>[^\s\"']{4,100}+)"),
    (
        "password",
        "snmp",
        rf"\bsnmp\w{{2,10}}[ \t][^\n]{{0,120}}?[ \t]-x[ \t]{{1,4}}{Q}(?P<value>(?!aes|des){V})",
    ),
    (
        "password",
        "snmp",
        rf"\bsnmp\w{{2,10}}[ \t][^\n]{{0,120}}?[ \t]-a[ \t]{{1,4}}{Q}(?P<value>(?!md5|sha|aes|des){V})",
    ),
    (
        "password",
        "snmp",
        rf"\bsnmp\w{{2,10}}[ \t][^\n]{{0,80}}?[ \t]-c[ \t]{{0,4}}{Q}(?P<value>(?!(?:public)\b){V})",
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
        r"(?:networkcredential|pscredential|usernamepassword\w{0,20}|basicauth|basic_auth|httpbasicauth|credentials?|basicawscredentials|azurenamedkeycredential|azurekeycredential)(?:\]?::new)?[ \t]*\([^()\n]{0,80}?[\"'](?P<chosen>[^\"'\n]{6,200}+)[\"'][ \t]*[,)]",
    ),
    (
        "password",
        "convertto-securestring",
        r"[\"'](?P<sure>[^\"'$\n]{4,200}+)[\"'][ \t]*\|[ \t]*convertto-securestring",
    ),
    # Code
    (
        "password",
        "password( passwd( passphrase( secret( token( apikey( api_key( pwd( key(",
        r"(?:password|passwd|passphrase|secret|token|api_?key|pwd|secret_?key|access_?key|with_?key)\([ \t]*[\"'](?P<mixed>[^\"'\n$%{<]{8,300}+)[\"'][ \t]*[,)]",
    ),
    (
        "password",
        "password( passwd( pass( passphrase( pwd(",
        r"(?:password|passwd|passphrase|pass|pwd)\([ \t]*[\"'](?P<chosen>[^\"'\n$%{<]{6,300}+)[\"'][ \t]*[,)]",
    ),
    (
        "password",
        "define( env( getenv environ default setting set( config( put( property(",
        rf"\([ \t]*[\"'][\w.-]{{0,40}}{CALLED}[\w-]{{0,8}}[\"'][ \t]*,[ \t]*[\"'](?P<chosen>[^\"'\n$%{{<]{{6,300}}+)[\"']",
    ),
    (
        "password",
        "auth connect login",
        r"(?:\bauth[ \t]*=[ \t]*|\.login|connect|getconnection|pdo|\.auth|\.authenticate|basic_auth|basicauth|set_auth)[ \t]*\((?:[^(),\n]{1,80},[ \t]*){1,3}[\"'](?P<chosen>[^\"'\n$%{<]{6,200}+)[\"']",
    ),
    (
        "password",
        "password pass secret token key",
        r"(?m:^)[ \t(#]*(?:(?:define|setq|export|set|let|def|defvar|const)[ \t]{1,4})?(?:[\w-]{0,20}(?:password|passwd|pass|secret|token|api_?key))[ \t]{1,4}(?:\"(?P<mixed>[^\"\n$<%{ ]{6,200}+)\"|'(?P<mixed2>[^'\n$<%{ ]{6,200}+)')[ \t]*(?:[;)]|(?m:$))",
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
        rf"\b(?:name|key|id|property|parametername|option|setting)[ \t]*=[ \t]*[\"'][^\"'<>\n]{{0,60}}?{CALLED}[\w.-]{{0,10}}[\"'][^<>\n]{{0,80}}?\bvalue[ \t]*=[ \t]*[\"'](?P<value>[^\"'<>\n]{{4,600}}+)[\"']",
    ),
    (
        "password",
        "value",
        rf"\bvalue[ \t]*=[ \t]*[\"'](?P<value>[^\"'<>\n]{{4,600}}+)[\"'][^<>\n]{{0,60}}?\b(?:name|key|id)[ \t]*=[ \t]*[\"'][^\"'<>\n]{{0,60}}?{CALLED}[\w.-]{{0,10}}[\"']",
    ),
    (
        "password",
        "</",
        rf"\b(?:name|key|id)[ \t]*=[ \t]*[\"'][^\"'<>\n]{{0,60}}?{CALLED}[\w.-]{{0,10}}[\"'][^<>\n]{{0,60}}?>\s{{0,40}}(?:<(?:value|string|val)>\s{{0,40}})?(?P<value>[^\s<>]{{4,600}}+)\s{{0,40}}</",
    ),
    (
        "password",
        "<key> </td> </th> </dt> </b> </label>",
        rf"<(?:key|td|th|dt|b|strong|label|li)(?:[ \t][^<>\n]{{0,60}})?>[^<>\n]{{0,40}}?{CALLED}[^<>\n]{{0,12}}</(?:key|td|th|dt|b|strong|label)>:?\s{{0,60}}(?:<(?:string|td|dd|span|code|i|tt)(?:[ \t][^<>\n]{{0,60}})?>\s{{0,20}}){{1,2}}(?P<value>[^\s<>]{{4,600}}+)",
    ),
    (
        "password",
        "name key variable",
        rf"[\"']?\b(?:name|key|parameterkey|variable|field|setting)[\"']?[ \t]*[:=][ \t]*[\"']?[\w./-]{{0,60}}?{CALLED}[\w-]{{0,10}}[\"']?[ \t]*(?:,[ \t]*|\n[ \t]*|,[ \t]*\n[ \t]*)[\"']?(?:\w{{0,16}}value|default)[\"']?[ \t]*[:=][ \t]*(?:\"(?P<value>[^\"\n]{{4,600}}+)\"|'(?P<value2>[^'\n]{{4,600}}+)'|(?P<word>[a-z]{{6,40}}+)(?=[ \t]*(?:\n|\Z))|(?P<mixed>[^\s\"',;<>\[\](){{}}$]{{6,600}}+))",
    ),
    (
        "password",
        "value",
        rf"[\"']?\bvalue[\"']?[ \t]*:[ \t]*[\"'](?P<value>[^\"'\n]{{4,600}}+)[\"'],?\s{{1,40}}[\"']?(?:name|key)[\"']?[ \t]*:[ \t]*[\"']?[\w./-]{{0,60}}?{CALLED}[\w-]{{0,10}}[\"']?(?=[ \t]*[,}}\n])",
    ),
    (
        "password",
        "variable",
        rf"\bvariable[ \t]+[\"'][\w-]{{0,40}}{CALLED}[\w-]{{0,10}}[\"'][ \t]*\{{[^{{}}]{{0,300}}?\bdefault[ \t]*=[ \t]*\"(?P<value>[^\"\n]{{4,600}}+)\"",
    ),
    (
        "password",
        "| >",
        rf"(?m:^)[ \t-]*[\"']?[\w.-]{{0,40}}?(?:{CALLED})[\w-]{{0,10}}[\"']?[ \t]*:[ \t]*(?:!\w+[ \t]+)?[|>][+-]?\d?[+-]?[ \t]*\n[ \t]+(?P<value>[^\s<${{][^\s]{{3,600}}+)(?=[ \t]*(?:\n|\Z))",
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
        "cookie",
        "true\t/ false\t/",
        r"\t(?:true|false)\t/[^\t\n]{0,100}\t(?:true|false)\t\d{1,12}\t[^\t\n]{1,80}\t(?P<mixed>[^\s]{10,4000}+)",
    ),
    (
        "recovery code",
        "code",
        r"\b(?:recovery|backup|scratch|emergency|2fa|mfa|wiederherstellungs)[ -]?codes?\b[^\n:=]{0,30}(?:[:=]|[ \t](?:is|was|are))[ \t]*[\"'`*]{0,3}(?P<sure>(?=[a-z -]{0,20}\d)[a-z0-9]{4,10}(?:[- ][a-z0-9]{4,10}){1,6}+|\d{6,10})(?![\w-])",
    ),
    (
        "password",
        "machine default",
        r"(?:machine\s+\S{1,120}|\bdefault)\s+(?:login|user)\s+\S{1,120}\s+(?:account\s+\S{1,80}\s+)?(?:password|passwd)\s+(?P<value>[^\s]{3,200}+)",
    ),
    (
        "password",
        ":",
        r"(?m:^)[ \t]{0,8}(?:[#>-][ \t]{0,4})?`?(?:\*|[\w-]{0,60}[.\w-]{0,80}|\[[0-9a-f:]+\]):(?:\*|[1-6]\d{3,4}):(?:\*|[\w.-]{1,60}):(?:\*|[\w.@-]{1,60}):(?P<value>[^\s:`]{3,200}+)`?(?m:$)",
    ),
    ("password hash", ":", r"(?m:^)[a-z_][\w.-]{0,31}\$?:(?P<value>(?![x*!]{1,2}:)[./0-9a-z]{13}):\d{0,6}:"),
    ("password hash", ":", r"(?m:^)[a-z_][\w.@-]{0,60}:(?P<value>(?=[./a-z]*\d)[./0-9a-z]{13})(?m:$)"),
    (
        "password hash",
        ":::",
        r"(?m:^)[\w.\\$ -]{1,60}:\d{1,10}:(?P<value>(?:[0-9a-f]{32}|\w{1,20}):[0-9a-f]{32}):::",
    ),
    ("password hash", "*", r"[\"'\s=:](?P<sure>\*[0-9a-f]{40})(?![0-9a-f])"),
    (
        "password",
        "enable username line user",
        r"(?m:^)[ \t]*(?:enable|username[ \t]\S{1,60}(?:[ \t]privilege[ \t]\d{1,2})?)[ \t](?:algorithm-type[ \t]\S+[ \t])?(?:secret|password)(?:[ \t]level[ \t]\d{1,2})?(?:[ \t](?:0|4|5|7|8|9|encrypted|sha512))?[ \t](?P<value>[^\s]{4,200}+)",
    ),
    (
        "password",
        "password key secret psk passphrase md5 ascii",
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
        rf"(?m:^)[ \t]*:[\w ]{{0,20}}?{CALLED}:[ \t]+(?P<mixed>[^\s\"'<]{{6,200}}+)[ \t]*(?m:$)",
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
        "|| ?? :- or",
        rf"{CALLED}[\w-]{{0,10}}[\"'\])]{{0,3}}[ \t]*(?:\|\||\?\?|:-|\bor\b)[ \t]*[\"']?(?P<generated>[^\s\"'`{{}}]{{8,300}}+)",
    ),
    (
        "password",
        "password",
        r"type=[\"']?password[\"']?[^<>\n]{0,80}[ \t]value=[\"'](?P<value>[^\"'<>\n]{4,200}+)[\"']",
    ),
    # Prose
    (
        "password",
        NOUNS,
        rf"\b{NOUN}s?\b[\"'`*_)]{{0,3}}(?:[^\n:=]{{0,60}}?[ \t*_`\"']{IS}[ \t]*:?|[^\n:=]{{0,40}}?(?:[:=]|[ \t]-{{1,2}}>?)|[ \t]*[,/]?)[ \t]{{1,8}}(?:(?:now|still|currently|jetzt|aktuell|just|simply|again|probably)[ \t]+)?{CHOSEN}",
    ),
    (
        "password",
        NOUNS,
        rf"\b{NOUN}\b[\"'`*_]{{0,3}}(?:[ \t]+(?:is|was|ist|lautet|est|es|e)[ \t:]+|[^\n:=]{{0,30}}[:=][ \t]*)[\"'`*_]{{0,3}}(?P<phrase>[a-z]{{3,9}}(?:[ -][a-z]{{3,9}}){{3,7}})(?=[\"'`*_]{{0,3}}[.]?[\"']?[ \t]*(?:\n|\Z))",
    ),
    (
        "password",
        "password passphrase passwd pass pin",
        r"\b(?:password|passwd|passphrase|passcode)[ \t]+(?:is|was|to)[ \t:]+(?:set[ \t]+to[ \t]+)?(?:\"(?P<secretword>[^\"\s]{5,80})\"|'(?P<secretword2>[^'\s]{5,80})'|`(?P<secretword3>[^`\s]{5,80})`)",
    ),
    (
        "password",
        NOUNS,
        rf"\b{NOUN}\b[^\n:=]{{0,40}}:[*_]{{0,3}}[ \t]*\n(?:[ \t]*\n)?(?:[ \t]*(?:```|~~~)\w{{0,12}}\n)?[ \t>*-]{{0,8}}{CHOSEN}[\"'`*_]{{0,3}}[ \t]*(?=\n|\Z)",
    ),
    (
        "PIN",
        "pin",
        r"\b(?:sim|door|card|bank|phone|unlock|alarm)?[ -]?pin(?:[ -]?code|[ -]?number|-?nummer)?\b[\"'`*]{0,3}[^\n\d]{0,40}?(?:[ \t](?:is|was|ist|lautet|est|es|to)|[:=])[ \t:]+[\"'`*]{0,3}(?P<sure>\d{4,8})(?=[.,;)]?[\"'`*]{0,3}[.,;)]?(?:[ \t]*(?:\n|\Z)|[ \t]+[a-z(]))(?![ \t]*(?:[mkgu]?(?:v|a|w|hz|s|m|ohms?|bits?|bytes?)\b))",
    ),
    (
        "token",
        "token key secret",
        r"\b(?:token|(?:api|access|secret|private)[ _-]?key|secret)[ \t]+(?:is|was|to)[ \t:]+(?:now[ \t]+)?[\"'`(]{0,2}(?P<random>[\w+/=.~-]{16,}+)",
    ),
    (
        "token",
        "token key secret",
        r"\b(?:api|access|secret|private|auth|license|licence|deploy|signing|encryption|bearer|bot|session|refresh|personal[ ]access|service|webhook|client)[ _-]?(?:key|token|secret)\b[^\n:=]{0,40}?[ \t\"'`(*]{1,4}(?P<random>(?=[\w+/=.~-]{0,60}?\d)[\w+/=.~-]{20,200}+)(?![(\[])",
    ),
    (
        "password",
        LOGIN_WORDS,
        rf"\b{LOGIN}[\"'`*]{{0,2}}(?:[ \t]+(?:with|as|is|are|using|were|to|mit|als|on|for|in|at)\b(?:[ \t]+[\w.@-]{{2,30}})?)?(?:[ \t]*[:=][ \t]*[^\n/|:,;()]{{0,30}}?)?[ \t:=*_`\"']{{1,4}}{USER}(?::[ \t]?|[ \t]{{1,3}}[/|][ \t]{{1,3}}){CHOSEN}",
    ),
    (
        "password",
        LOGIN_WORDS,
        rf"\b{LOGIN}[ \t]*(?:(?:is|are|with|as)[ \t]|[:=])?[ \t]*{USER}/{CHOSEN}",
    ),
    (
        "password",
        "admin root guest demo postgres",
        rf"\b(?:admin|administrator|root|guest|demo|postgres)[\"'`*]{{0,3}}(?:[ \t]{{1,3}}/[ \t]{{1,3}}|:)(?!//){CHOSEN}",
    ),
    (
        "password",
        "log sign anmeld",
        rf"(?:^|(?<=[\s\"'`(])){USER}[ \t]{{1,3}}/[ \t]{{1,3}}{CHOSEN}[\"'`*]{{0,3}}[ \t]+(?:(?:to|zum|for|pour|para)[ \t])?(?:log|sign|anmeld)",
    ),
    ("password", "wifi:", r"\bwifi:(?:[a-z]:[^;\n]{0,60};){0,3}p:(?P<sure>[^;\n]{4,80});"),
    (
        "password",
        "{",
        rf"{CALLED}[\w-]{{0,10}}[\"']?[ \t]*[:=]>?\s{{0,10}}\{{\s{{0,40}}[\"']?(?:value|default|plain|secret)[\"']?[ \t]*[:=]>?[ \t]*[\"'](?P<value>[^\"'\n]{{4,600}}+)[\"']",
    ),
    (
        "token",
        "/private- /secret- /token- /private/ /secret/ /token/",
        r"://[^\s\"'<>]{1,200}?/(?:private|secret|token)[-_/](?P<random>[\w-]{16,}+)",
    ),
    (
        "token",
        ".login( authenticate( login(",
        r"(?:login|authenticate)\([ \t]*[\"'](?P<random>[\w.=-]{20,}+)[\"'][ \t]*\)",
    ),
    ("password", "-passphrase", r"--?passphrase[ =][\"'](?P<phrase>[a-z]{3,9}(?:[ -][a-z]{3,9}){3,7})[\"']"),
    (
        "password",
        "ssh-keygen",
        rf"\bssh-keygen[ \t][^\n]{{0,120}}?(?<=[ \t])-[np][ \t]{{1,3}}{Q}(?P<chosen>{V})",
    ),
    ("password", "openssl", rf"\bopenssl[ \t][^\n]{{0,120}}?(?<=[ \t])-k[ \t]{{1,3}}{Q}(?P<chosen>{V})"),
    (
        "password",
        "http",
        rf"(?m:^|[`$ \t])(?:https?|xh|xhs)[ \t][^\n]{{0,60}}?(?:-a|--auth)[ \t=]{Q}[\w.@-]{{1,60}}:(?P<chosen>{V})",
    ),
)
"""Where a value stands that is a secret. Its group says what it must be for that: `value` what says nothing of
where a secret will stand, `mixed` letters and digits, `random` a long mixture, `generated` what no word is,
`word` and `secretword` no word of a sentence. In small letters, as the text is that they are looked for in."""
