"""Texts that give away a secret, as data: `«…»` is what must not be sent, drawn anew for each seed.

`«w9»` is a word of nine letters, `m` letters and digits, `s` with symbols too, `a` letters and digits of a
token, `h` hexadecimal, `b` base64, `u` upper case and digits, `d` digits, `t` base32; `«=…»` is that very
text; `«#1 …»` is drawn once and used again as `«#1»`. `encoded` gives the same in ways in which texts are
written otherwise.
"""

from __future__ import annotations

import base64
import html
import json
import random
import re
import string
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ALNUM = string.ascii_letters + string.digits
_ALPHABETS = {
    "w": string.ascii_lowercase,
    "m": ALNUM,
    "s": ALNUM + "!#%*+=?@^",
    "a": ALNUM,
    "h": "0123456789abcdef",
    "b": ALNUM + "+/",
    "u": string.ascii_uppercase + string.digits,
    "d": string.digits,
    "t": string.ascii_uppercase + "234567",
}
_SPEC = re.compile("«(=[^»]+|[a-z]\\d+)»")
_WORDS = [
    "able",
    "brick",
    "cactus",
    "dune",
    "eagle",
    "fabric",
    "garlic",
    "hazard",
    "island",
    "jungle",
    "kidney",
    "ladder",
    "magnet",
    "noodle",
    "oyster",
    "panther",
]

TEXTS: Mapping[str, str] = {
    # Names and values
    "env pass": "DB_PASS=«w9»",
    "env pass digits": "MYSQL_ROOT_PASS=«m10»",
    "env export": "export SMTP_PASS='«s12»'",
    "env passwd": "FTP_PASSWD=«w8»",
    "env pw": "ADMIN_PW=«m10»",
    "dockerfile": "ENV POSTGRES_PASSWORD «m12»",
    "dockerfile arg": "ARG NPM_TOKEN=«a36»",
    "compose": "    environment:\n      - MYSQL_PASSWORD=«m12»",
    "compose map": "      MYSQL_PASSWORD: «w10»",
    "json pass": '{"host": "h", "user": "ann", "pass": "«w9»"}',
    "json pass mixed": '{"pass":"«m10»"}',
    "json passwd": '{"passwd": "«w10»"}',
    "json nested": '"smtp": {"auth": {"user": "a@b.c", "pass": "«s12»"}}',
    "js object": "const db = { user: 'ann', password: '«w9»' };",
    "js object pass": "auth: { user: 'ann', pass: '«m10»' }",
    "ts typed": 'const apiKey: string = "«a32»";',
    "python typed": 'password: str = "«w9»"',
    "python secretstr": 'password: SecretStr = SecretStr("«w9»")',
    "python bytes": 'SECRET_KEY = b"«a32»"',
    "python default": 'os.environ.get("DB_PASSWORD", "«m12»")',
    "python getenv": "os.getenv('API_TOKEN', '«a24»')",
    "python setitem": 'os.environ["AWS_SECRET_ACCESS_KEY"] = "«b40»"',
    "python auth tuple": 'requests.get(url, auth=("ann", "«s12»"))',
    "python basicauth": 'HTTPBasicAuth("ann", "«m12»")',
    "java properties": "spring.datasource.password=«w9»",
    "java properties mixed": "spring.datasource.password=«m12»",
    "java setter": 'ds.setPassword("«m12»");',
    "java builder": 'Client.builder().apiKey("«a32»").build()',
    "c#": 'new NetworkCredential("ann", "«m10»")',
    "go": 'Password: "«w9»",',
    "go const": 'const apiSecret = "«a32»"',
    "rust": 'let api_key: &str = "«a32»";',
    "php define": "define('DB_PASSWORD', '«m12»');",
    "php array": "'password' => '«w9»',",
    "ruby": "password: '«w9»'",
    "ruby secret": "  secret_key_base: «h128»",
    "ruby secret string": 'config.secret_key_base = "«h64»"',
    "elixir": 'secret_key_base: "«b64»",',
    "perl": "my $password = '«w9»';",
    "bash": 'PASSWORD="«w9»"',
    "bash local": "local db_pass='«m10»'",
    "powershell": "$password = '«w9»'",
    "securestring": '$pw = ConvertTo-SecureString "«m12»" -AsPlainText -Force',
    "securestring single": "ConvertTo-SecureString -String '«w9»' -AsPlainText -Force",
    "securestring after": "ConvertTo-SecureString -AsPlainText '«m10»' -Force",
    "batch": "set DB_PASSWORD=«m10»",
    "vb": 'password = "«w9»" \' fixed',
    "sql": "CREATE USER ann IDENTIFIED BY '«w9»';",
    "sql mysql": "ALTER USER 'ann'@'%' IDENTIFIED WITH mysql_native_password BY '«m10»';",
    "sql postgres": "CREATE ROLE ann WITH LOGIN PASSWORD '«w9»';",
    "sql alter": "ALTER USER ann WITH PASSWORD '«m10»';",
    "sql set": "SET PASSWORD FOR ann = PASSWORD('«m10»');",
    "terraform": '  password = "«w9»"',
    "terraform variable": 'variable "db_password" {\n  type = string\n  default = "«m12»"\n}',
    "tfvars": 'secret_key = "«b40»"',
    "ansible": "ansible_ssh_pass: «m10»",
    "ansible become": "ansible_become_password: «w9»",
    "ansible inline": "web1 ansible_host=10.0.0.1 ansible_user=ann ansible_password=«m10»",
    "hmac": "hmac_key: «h64»",
    "hmac quoted": '"hmac_key": "«b44»"',
    "signing": "JWT_SIGNING_KEY=«a40»",
    "encryption": 'encryption_key = "«h64»"',
    "laravel": "APP_KEY=base64:«b43»=",
    "django": "SECRET_KEY = 'django-insecure-«s40»'",
    "flask": "app.config['SECRET_KEY'] = '«h32»'",
    "flask short": "app.secret_key = '«m16»'",
    "license": "license_key: «u25»x9",
    "consumer": 'consumer_secret = "«a50»"',
    "azure client": "AZURE_CLIENT_SECRET=«m3»8Q~«a34»",
    "azure client id": 'client_secret: "«m3»7Q~«a34»"',
    "azure storage": "AZURE_STORAGE_KEY=«b86»==",
    "azure connection": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=«b86»==;EndpointSuffix=core.windows.net",
    "azure bus": "Endpoint=sb://a.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=«b43»=",
    "azure sas": "https://a.blob.core.windows.net/c?sv=2022-11-02&ss=b&srt=sco&sp=r&se=2026-01-01T00:00:00Z&sig=«a43»%3D",
    "azure function": "https://a.azurewebsites.net/api/f?code=«a54»==",
    "azure cosmos": "AccountEndpoint=https://a.documents.azure.com:443/;AccountKey=«b86»==;",
    "azure subscription key": "Ocp-Apim-Subscription-Key: «h32»",
    "aws secret": "aws_secret_access_key = «b40»",
    "aws env": "AWS_SECRET_ACCESS_KEY=«b40»",
    "aws json": '"SecretAccessKey": "«b40»"',
    "aws session": "aws_session_token = IQoJ«b200»",
    "aws cli": "aws configure set aws_secret_access_key «b40»",
    "aws signed": "https://b.s3.amazonaws.com/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=«h64»",
    "aws header": "Authorization: AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=«h64»",
    "s3cfg": "[default]\naccess_key = a\nsecret_key = «b40»",
    "boto": "[Credentials]\ngs_secret_access_key = «b40»",
    "rclone": "[remote]\ntype = sftp\npass = «a30»",
    "gcp refresh": '"refresh_token": "1//0«a60»"',
    "firebase": 'apiKey: "AIza«a35»",',
    "gcp id": "https://maps.example/api/js?key=AIza«a35»",
    "url key": "https://api.example/v1/things?key=«a32»&lang=de",
    "url key hex": "GET /v2/data?key=«h32» HTTP/1.1",
    "url apikey": "https://api.example/q?apikey=«m20»",
    "url token": "https://api.example/q?access_token=«a32»#x",
    "url session": "http://shop.example/cart?PHPSESSID=«h26»",
    "url password": "https://a.example/login?user=ann&password=«w9»",
    "url user token": "https://«a40»@git.example/team/app.git",
    "url token basic": "https://«h40»:x-oauth-basic@github.com/a/b",
    "url password slash": "postgres://ann:«m6»/«m6»@db1:5432/app",
    "url password at": "mysql://ann:«m6»@«m6»@db1/app",
    "url password colon": "amqp://ann:«m5»:«m6»@mq:5672/v",
    "url mongo": "mongodb+srv://ann:«m12»@c0.mongodb.net/?retryWrites=true",
    "url redis": "rediss://default:«a20»@cache:6380",
    "url nested": "https://u:«m5»@ss/gh«m20»@host/r?access_token=«a24»",
    "jdbc": "jdbc:mysql://db1:3306/app?user=ann&password=«w9»",
    "jdbc sqlserver": "jdbc:sqlserver://db1;databaseName=a;user=ann;password=«w9»;encrypt=true",
    "jdbc oracle": "jdbc:oracle:thin:ann/«m10»@db1:1521:orcl",
    "ado": 'connectionString="Server=db1;User Id=ann;Password=«w9»;"',
    "odbc": "Driver={SQL Server};Server=db1;UID=ann;PWD=«s10»;",
    "pg dsn": "host=db1 port=5432 user=ann password=«w9» dbname=app",
    "sentry": "https://«h32»@o1.ingest.sentry.io/2",
    "appinsights": "InstrumentationKey=«h8»-«h4»-«h4»-«h4»-«h12»x;",
    # Command lines
    "cli password": "backup --user ann --password «w9»",
    "cli password equals": "backup --password=«w9» --all",
    "cli quoted": "tool --db-password '«s12»'",
    "cli token": "gh-tool --token «a36»",
    "cli secret": "cli login --client-secret=«a32»",
    "cli api key": "tool --api-key «h32»",
    "docker login": "docker login -u ann -p «m12» registry.example",
    "docker login word": "docker login registry.example -u ann -p «w9»",
    "sshpass": "sshpass -p «w9» ssh ann@db1",
    "mysql": "mysql -u root -p«m10» app",
    "mysqldump": "mysqldump -uroot -p'«w9»' app > a.sql",
    "redis-cli": "redis-cli -h cache -a «m16» ping",
    "mongo": "mongosh --host db1 -u ann -p «w9» admin",
    "ldap": "ldapsearch -x -D cn=admin -w «m10» -b dc=a",
    "curl": "curl -u ann:«w9» https://api.example",
    "curl attached": "curl -uann:«m10» https://api.example",
    "curl header": "curl -H 'X-Api-Key: «a32»' https://api.example",
    "curl bearer": "curl -H 'Authorization: Bearer «a40»' https://a",
    "wget": "wget --http-user=ann --http-password=«w9» https://a",
    "net use": "net use Z: \\\\srv\\share «m10» /user:ann",
    "net use after": "net use \\\\srv\\share /user:ACME\\ann «w9»",
    "net user": "net user ann «m10» /add",
    "cmdkey": "cmdkey /add:srv /user:ann /pass:«m10»",
    "rdp": "xfreerdp /u:ann /p:«m10» /v:srv",
    "plink": "plink -ssh ann@db1 -pw «w9»",
    "psexec": "psexec \\\\srv -u ann -p «m10» cmd",
    "sqlcmd": "sqlcmd -S db1 -U sa -P «s10» -Q q",
    "sqlplus": "sqlplus ann/«m10»@orcl",
    "smbclient": "smbclient //srv/share -U ann%«m10»",
    "openssl": "openssl enc -aes-256-cbc -in a -pass pass:«m10»",
    "openssl passin": "openssl rsa -in k.pem -passin pass:«w9»",
    "gpg": "gpg --batch --passphrase «m12» -c a",
    "keytool": "keytool -list -keystore a.jks -storepass «w9»",
    "chpasswd": "echo 'ann:«m10»' | chpasswd",
    "sudo": "echo «w9» | sudo -S apt update",
    "htpasswd b": "htpasswd -b .htpasswd ann «w9»",
    "zip": "zip -P «m10» a.zip a",
    "ipmitool": "ipmitool -I lanplus -H bmc -U ADMIN -P «m10» power status",
    "snmp v3": "snmpget -v3 -u ann -l authPriv -a SHA -A «m10» -x AES -X «m12» h o",
    "snmp community": "snmpwalk -v2c -c «m10» sw1 1.3.6",
    "wpa_passphrase": "wpa_passphrase home «m10»",
    "vault": "vault login hvs.«a24»",
    "heroku": "HEROKU_API_KEY=«h8»-«h4»-«h4»-«h4»-«h12»",
    "helm": "helm install a b --set db.password=«m10»",
    "kubectl": "kubectl create secret generic s --from-literal=password=«w9»",
    "ansible e": 'ansible-playbook a.yml -e "ansible_password=«m10»"',
    # Files
    "netrc": "machine a.example\n  login ann\n  password «w9»",
    "netrc line": "machine a.example login ann password «m10»",
    "netrc default": "default login ann password «w9»",
    "pgpass": "db1.example:5432:app:ann:«w9»",
    "pgpass star": "*:*:*:ann:«m10»",
    "shadow": "ann:$6$«a16»$«a86»:19000:0:99999:7:::",
    "shadow yescrypt": "root:$y$j9T$«a22»$«a43»:19000:0:99999:7:::",
    "shadow md5": "ann:$1$«a8»$«a22»:19000::::::",
    "htpasswd apr": "ann:$apr1$«a8»$«a22»",
    "htpasswd bcrypt": "ann:$2y$05$«a53»",
    "htpasswd sha": "ann:{SHA}«b27»=",
    "ldif": "userPassword: {SSHA}«b32»",
    "django hash": "pbkdf2_sha256$260000$«a22»$«b43»=",
    "argon": "$argon2id$v=19$m=65536,t=3,p=4$«a22»$«a43»",
    "ntlm": "ann:1001:aad3b435b51404eeaad3b435b51404ee:«h32»:::",
    "my.cnf": "[client]\nuser=ann\npassword=«w9»",
    "my.cnf quoted": '[client]\npassword="«s12»"',
    "npmrc": "//registry.example/:_authToken=«a36»",
    "npmrc auth": "_auth=«b40»==",
    "npmrc password": "//r.example/:_password=«b24»",
    "pypirc": "[pypi]\nusername = __token__\npassword = pypi-«a80»",
    "pip": "index-url = https://ann:«m10»@pypi.example/simple",
    "docker auth": '{"auths": {"r.example": {"auth": "«b40»"}}}',
    "kubeconfig": "    client-key-data: LS0tLS1CRUdJTi«b400»",
    "kubeconfig token": "    token: «a60»",
    "k8s secret": "apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  username: YW5u\n  db: «b24»",
    "k8s string data": "kind: Secret\nstringData:\n  anything: «w9»",
    "k8s env": "        - name: DB_PASSWORD\n          value: «w9»",
    "k8s env quoted": '- name: API_TOKEN\n  value: "«a24»"',
    "ecs": '{"name": "DB_PASSWORD", "value": "«w9»"}',
    "cloudformation": "ParameterKey=DbPassword,ParameterValue=«m10»",
    "jwk": '{"kty":"RSA","n":"0vx7","e":"AQAB","d":"«a86»"}',
    "jwk oct": '{"kty": "oct", "k": "«a43»"}',
    "gitlab ci": "variables:\n  DEPLOY_TOKEN: «a20»",
    "github action": "        env:\n          API_KEY: «a32»",
    "yaml quoted": "password: '«s12»'",
    "yaml block": "password: |\n  «m12»",
    "yaml folded": "db_password: >-\n  «w9»",
    "yaml punctuation": "password: «m6»,«m4»]x",
    "toml": "[db]\npassword = '«w9»'",
    "ini": "[db]\nuser = ann\npassword = «m10»",
    "ini semicolon": "password=«w9» ; old one",
    "xml element": "<password>«w9»</password>",
    "xml attribute": '<user name="ann" password="«w9»"/>',
    "xml value": '<add key="DbPassword" value="«w9»"/>',
    "xml property": '<property name="hibernate.connection.password" value="«m10»" />',
    "xml property text": '<property name="javax.jdo.option.ConnectionPassword">«w9»</property>',
    "xml entry": '<entry key="db.password">«w9»</entry>',
    "maven": "<server><id>a</id><username>ann</username><password>«w9»</password></server>",
    "unattend": "<AdministratorPassword><Value>«b24»</Value></AdministratorPassword>",
    "unattend password": "<Password>\n  <Value>«m10»</Value>\n  <PlainText>true</PlainText>",
    "wifi xml": "<sharedKey><keyType>passPhrase</keyType><keyMaterial>«m10»</keyMaterial></sharedKey>",
    "android": '<string name="api_key">«a32»</string>',
    "plist": "<key>Password</key>\n<string>«w9»</string>",
    "nuget": '<add key="ClearTextPassword" value="«a24»" />',
    "machine key": '<machineKey validationKey="«h64»" decryptionKey="«h48»" />',
    "html table": "<tr><td>Password</td><td>«w9»</td></tr>",
    "html input": '<input type="hidden" name="api_token" value="«a24»">',
    "wpa psk": 'network={\n  ssid="home"\n  psk="«w9»"\n}',
    "wpa psk hex": "  psk=«h64»",
    "hostapd": "wpa_passphrase=«w10»",
    "networkmanager": "[wifi-security]\nkey-mgmt=wpa-psk\npsk=«m10»",
    "cisco secret": "enable secret 5 $1$«a4»$«a22»",
    "cisco secret plain": "enable password «m10»",
    "cisco type 7": "username ann password 7 «u20»",
    "cisco snmp": "snmp-server community «m10» RO",
    "cisco tacacs": "tacacs-server key «m12»",
    "cisco isakmp": "crypto isakmp key «m12» address 1.2.3.4",
    "cisco line": "line vty 0 4\n password «m10»",
    "juniper": 'encrypted-password "$1$«a8»$«a22»";',
    "juniper 9": 'secret "$9$«a20»"; ## SECRET-DATA',
    "juniper psk": 'pre-shared-key ascii-text "$9$«a24»";',
    "snmpd": "rocommunity «m10» 10.0.0.0/8",
    "snmpd user": 'createUser ann SHA "«m12»" AES',
    "redis conf": "requirepass «w9»",
    "redis master": "masterauth «m16»",
    "ldap conf": "bindpw «w9»",
    "slapd": "rootpw {SSHA}«b32»",
    "ipsec": '@a @b : PSK "«m16»"',
    "chap": '"ann" * "«m10»" *',
    "freeradius": 'ann Cleartext-Password := "«w9»"',
    "postfix": "[smtp.example]:587 ann@a.example:«m10»",
    "msmtp": "account a\nhost h\npassword «m10»",
    "fetchmail": "poll h proto imap user ann pass «m10»",
    "openvpn": "<auth-user-pass>\nann\n«w9»\n</auth-user-pass>",
    "wireguard": "[Interface]\nPrivateKey = «b43»=",
    "wireguard psk": "PresharedKey = «b43»=",
    "gradle": "storePassword '«m10»'",
    "git credentials": "https://ann:«a20»@git.example",
    "svn": "K 8\npassword\nV 9\n«w9»\nEND",
    # Tables and prose
    "markdown table": "| Service | User | Password |\n|---|---|---|\n| db | ann | «w9» |\n| mq | bob | «w8» |",
    "markdown table rows": "| User | ann |\n| Password | «w9» |",
    "markdown table code": "| name | api key |\n| :-- | --: |\n| a | `«a32»` |",
    "csv": "user,password,role\nann,«w9»,admin\nbob,«m10»,guest",
    "tsv": "host\tuser\tpassword\ndb1\tann\t«m10»",
    "markdown bold": "**Password:** «m10»",
    "markdown bold inside": "**Password**: `«w9»`",
    "markdown list": "- API key: `«a32»`",
    "prose is": "The root password is «m12».",
    "prose quoted": "The password is '«w9»'.",
    "prose code": "Its password is `«w9»`, for now.",
    "prose changed": "I set the password to «s12» today.",
    "prose login": "Log in with ann / «s12».",
    "prose token": "The token is «a40».",
    "next line": "Password:\n\n    «s12»",
    "pin": "PIN: «d6»",
    "german": "Passwort: «m10»",
    "spanish": "contraseña: «m10»",
    "french": "mot de passe : «m10»",
    "russian": "пароль: «m10»",
    "chinese": "密码：«m10»",
    "seed phrase": "seed phrase: «=able brick cactus dune eagle fabric garlic hazard island jungle kidney ladder»",
    "mnemonic": 'MNEMONIC="«=able brick cactus dune eagle fabric garlic hazard island jungle kidney ladder»"',
    "seed lines": "Recovery phrase:\n1. «=able»\n2. brick\n3. cactus\n4. dune\n5. eagle\n6. fabric\n7. garlic\n8. hazard\n9. island\n10. jungle\n11. kidney\n12. «=ladder»",
    "seed alone": "«=legal winner thank year wave sausage worth useful legal winner thank yellow»",
    "recovery codes": "Recovery codes:\n«m5»1-«m5»2\n«m5»3-«m5»4",
    "ethereum": "PRIVATE_KEY=0x«h64»",
    "ethereum prose": "Private key: 0x«h64»",
    "wif": "5J«=KbVrzPwQ1wJEcmAuSfRT7Xc8N5vHg3DtZ2qEu4MiLyBaRoGkF»"[:60],
    "otpauth": "otpauth://totp/a:ann?secret=«t32»&issuer=a",
    "totp": "TOTP_SECRET=«t31»7",
    # Headers and tokens
    "basic": "Authorization: Basic «b24»==",
    "basic json": '"Authorization": "Basic «b24»"',
    "digest": 'Authorization: Digest username="ann", realm="r", nonce="x", uri="/", response="«h32»"',
    "token header": "Authorization: token «h40»",
    "apikey header": "x-api-key: «a40»",
    "private token": "PRIVATE-TOKEN: «a20»",
    "auth token": "X-Auth-Token: «h32»",
    "cookie": "Cookie: theme=dark; sessionid=«a32»; lang=de",
    "set-cookie": "Set-Cookie: connect.sid=s%3A«a32».«a43»; Path=/; HttpOnly",
    "cookie curl": "curl -b 'JSESSIONID=«u32»' https://a",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJ«a40».«a43»",
    "jwe": "eyJhbGciOiJSU0EtT0FFUCJ9.«a86».«a16».«a43».«a22»",
    "paseto": "v4.local.«a90»",
    "flask session": "session=eyJ«a20».Zx«a4».«a27»",
    "telegram url": "https://api.telegram.org/bot123456789:AA«a33»/getMe",
    "teams": "https://acme.webhook.office.com/webhookb2/«h8»-«h4»/IncomingWebhook/«h32»/x",
    "slack workflow": "https://hooks.slack.com/workflows/T«u8»/A«u9»/«d18»/«a24»",
    "google chat": "https://chat.googleapis.com/v1/spaces/AAA/messages?key=AIza«a35»&token=«a43»",
    "doppler": "dp.st.prd.«a43»",
    "pulumi": "pul-«h40»",
    "airtable": "pat«a14».«h64»",
    "planetscale": "pscale_tkn_«a43»",
    "fly": "fm2_«b80»",
    "tailscale": "tskey-auth-«a12»-«a32»",
    "dynatrace": "dt0c01.«t24».«t64»",
    "hubspot": "pat-na1-«h8»-«h4»-«h4»-«h4»-«h12»",
    "figma": "figd_«a40»",
    "snyk": "snyk_uat.«h8».«a48»",
    "nvidia": "nvapi-«a64»",
    "bitbucket": "ATBB«a32»",
    "sendinblue": "xkeysib-«h64»-«a16»",
    "crates": "cio«a32»",
    "nuget key": "oy2«w22»«w21»",
    "minisign": "untrusted comment: minisign encrypted secret key\nRWRTY0Iy«b200»==",
    "nostr": "nsec1«=qpzry9x8gf2tvdw0s3jn54khce6mua7lqpzry9x8gf2tvdw0s3jn54khce»",
    "xprv": "xprv9s21ZrQH143K«=3GJpoapnV8SFfuZaE7aRB2EwUwTLNxS1k4RzMoPQDe8KbVrzPwQ1wJEcmAuSfRT7Xc8N5vHg3DtZ2qEu4MiLyBaRoGkFpQ»",
    "terraform cloud": 'credentials "app.terraform.io" {\n  token = "«a14».atlasv1.«a67»"\n}',
    "conda": "https://conda.anaconda.org/t/ab-«h8»-«h4»-«h4»-«h4»-«h12»/x",
}


def drawn(text: str, seed: int) -> tuple[str, tuple[str, ...]]:
    """Return a text with its secrets drawn, and the secrets."""
    draw = random.Random(f"{seed} {text}")
    parts: list[str] = []

    def put(match: re.Match[str]) -> str:
        spec = match[1]
        if spec[0] == "=":
            parts.append(spec[1:])
            return spec[1:]
        count, alphabet = int(spec[1:]), _ALPHABETS[spec[0]]
        value = "".join(draw.choices(alphabet, k=count))
        if spec[0] in "ms" and count > 3:
            value = f"{value[1 : count // 2]}7{value[count // 2 : -2]}kQ"[:count]
        if spec[0] == "s":
            value = f"{value[:5]}!{value[6:]}"
        parts.append(value)
        return value

    return _SPEC.sub(put, text), tuple(parts)


def leaks(sent: str, parts: tuple[str, ...]) -> bool:
    """Whether any secret stands in what is sent; of a short one all, of a long one any sixteen characters."""
    return any(
        part[at : at + 16] in sent
        for part in parts
        if len(part) > 3
        for at in range(0, max(len(part) - 15, 1), 4)
    )


_KEY = "".join(random.Random(5).choices(ALNUM + "+/", k=64 * 6))
_BODY = [_KEY[at : at + 64] for at in range(0, len(_KEY), 64)] + ["aB3x9Q=="]


def _block(name: str = "RSA PRIVATE KEY", fields: str = "") -> list[str]:
    return [
        f"-----BEGIN {name}-----",
        *fields.split("\n")[: 99 if fields else 0],
        *_BODY,
        f"-----END {name}-----",
    ]


def key_blocks() -> Iterator[tuple[str, str]]:
    """Yield private keys as texts have them."""
    for name in (
        "> ",
        "# ",
        "// ",
        "+",
        "-",
        "| ",
        " * ",
        "    ",
        "\t",
        ";; ",
        "-- ",
        "% ",
        "REM ",
        "> > ",
        "  - ",
        "' ",
        "/// ",
        '" ',
    ):
        yield f"behind {name!r}", "\n".join(name + line for line in _block())
    numbers = enumerate(_block(), 1)
    yield "line numbers", "\n".join(f"{number:4d}  {line}" for number, line in numbers)
    yield "line numbers with bars", "\n".join(f"{number}| {line}" for number, line in enumerate(_block(), 9))
    yield "diff hunk", "@@ -1,3 +1,9 @@\n" + "\n".join(f"+{line}" for line in _block())
    yield "html breaks", "<br>".join(_block())
    yield "html breaks and lines", "<br/>\n".join(_block())
    yield "html code", "<pre><code>" + "\n".join(_block()) + "</code></pre>"
    yield "trailing pipes", "\n".join(f"| {line} |" for line in _block())
    yield "quoted lines", "\n".join(f'"{line}\\n" +' for line in _block())
    yield "c string", "\n".join(f'    "{line}\\n"' for line in _block())
    yield "json", json.dumps({"key": "\n".join(_block())})
    yield "json twice", json.dumps(json.dumps({"key": "\n".join(_block())}))
    yield "json array", json.dumps(_block(), indent=2)
    yield "one line", "".join(_block())
    yield "blanks for breaks", " ".join(_block())
    yield "env", 'KEY="' + "\\n".join(_block()) + '"'
    yield "entities", "&#10;".join(_block())
    yield "percent", quote("\n".join(_block()))
    yield "windows", "\r\n".join(_block())
    yield "blank lines", "\n\n".join(_block())
    yield "proc type", "\n".join(_block(fields="Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0011AABB\n"))
    yield (
        "proc type quoted",
        "\n".join(
            "> " + line for line in _block(fields="Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0011\n")
        ),
    )
    yield (
        "odd fields",
        "\n".join(_block(fields="X-Origin: somewhere\nNote: my old key of the laptop that I gave away\n")),
    )
    yield "pgp", "\n".join(_block("PGP PRIVATE KEY BLOCK", "Version: GnuPG v2\nComment: ann\n"))
    yield "openssh", "\n".join(_block("OPENSSH PRIVATE KEY"))
    yield (
        "ssh2",
        "\n".join(
            [
                "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----",
                'Comment: "x"',
                *_BODY,
                "---- END SSH2 ENCRYPTED PRIVATE KEY ----",
            ]
        ),
    )
    yield (
        "putty",
        "\n".join(
            [
                "PuTTY-User-Key-File-3: ssh-rsa",
                "Encryption: none",
                "Comment: x",
                "Private-Lines: 7",
                *_BODY,
                "Private-MAC: 00aa",
            ]
        ),
    )
    yield (
        "putty quoted",
        "\n".join("# " + line for line in ["PuTTY-User-Key-File-2: ssh-rsa", "Private-Lines: 7", *_BODY]),
    )
    yield (
        "spaced header",
        "\n".join(["----- BEGIN RSA PRIVATE KEY -----", *_BODY, "----- END RSA PRIVATE KEY -----"]),
    )
    yield (
        "small header",
        "\n".join(["-----begin rsa private key-----", *_BODY, "-----end rsa private key-----"]),
    )
    yield (
        "dashes that look alike",
        "\n".join(
            ["\u2013\u2013\u2013\u2013\u2013BEGIN RSA PRIVATE KEY\u2013\u2013\u2013\u2013\u2013", *_BODY]
        ),
    )
    yield (
        "letters that look alike",
        "\n".join(["-----B\u0415GIN RSA PRIVAT\u0415 KEY-----", *_BODY, "-----END RSA PRIVATE KEY-----"]),
    )
    yield (
        "escaped dashes",
        "\n".join(
            [
                "\\-\\-\\-\\-\\-BEGIN RSA PRIVATE KEY\\-\\-\\-\\-\\-",
                *_BODY,
                "\\-\\-\\-\\-\\-END RSA PRIVATE KEY\\-\\-\\-\\-\\-",
            ]
        ),
    )
    yield "no header", "MIIEpAIBAAKCAQEA" + "\n".join(_BODY)
    yield "openssh without header", "b3BlbnNzaC1rZXktdjEAAAAA" + "\n".join(_BODY)
    yield "no end", "\n".join(_block()[:-1])
    yield "base64", base64.b64encode("\n".join(_block()).encode()).decode()
    yield (
        "log lines",
        "\n".join(f"2026-01-01T00:00:0{at} host app[1]: {line}" for at, line in enumerate(_block())),
    )
    yield (
        "table cells",
        "\n".join(f"<tr><td>{at}</td><td>{line}</td></tr>" for at, line in enumerate(_block())),
    )


def key_parts() -> tuple[str, ...]:
    """Return the lines of the key of `key_blocks`."""
    return tuple(_BODY[:-1])


def _mixed_case(text: str, pairs: Mapping[str, str]) -> str:
    return "".join(pairs.get(char, char) for char in text)


_CYRILLIC = dict(zip("aceopxs", "\u0430\u0441\u0435\u043e\u0440\u0445\u0455", strict=True))
_FULL = {chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)}
_BOLD = {chr(ord("a") + at): chr(0x1D41A + at) for at in range(26)}

CHOSEN: Final = (
    "Sommer2024!",
    "dragon88",
    "C0ffee!",
    "Winter!2023",
    "kitty_cat7",
    "blue42sky",
    "Kuerbis-Feld9",
    "q1w2e3r4",
    "Frühling2025",
)
"""Passwords as people choose them."""

GIVEN: Final = (
    "DB_HOST=db1\nDB_PASS={}\nDB_PORT=5432",
    "  export SMTP_PASS='{}'",
    "# MYSQL_ROOT_PASS={}",
    "ENV REDIS_PASS {}\nRUN make",
    "    environment:\n      - RABBITMQ_DEFAULT_PASS={}",
    "ftp_pass = {}",
    'variable "x" {\n  default = 1\n}\nvcenter_pass = "{}"',
    "set ORACLE_PASS={}\r\nsqlplus\r",
    '$env:SONAR_PASS = "{}"',
    "- `LDAP_BIND_PASS`: `{}`",
    "APP_PASS={}\nX=1",
    '{"user": "app", "pass": "{}"}',
    "{'host': 'h', 'pass': '{}'}",
    "  auth: { user: 'mailer', pass: '{}' },",
    "smtp:\n  user: bot\n  pass: {}",
    '[mail]\npass = "{}"',
    "<smtp><user>bot</user><pass>{}</pass></smtp>",
    "USER: bot\nPASS: {}",
    "Login with user bot, pass {}, then restart.",
    "| user | pass |\n| --- | --- |\n| bot | {} |",
    "**Pass:** {}",
    "$ mysqldump --user=root --password {} shop > shop.sql",
    "mysqladmin --password={} ping",
    "vault login -method=userpass --password '{}' username=bob",
    "  app-cli --passwd {} --host h",
    "openssl rsa -passin pass:{} -in k.pem",
    "Run `helm registry login -u bot --password {} reg.example.com`.",
    'subprocess.run(["tool", "--password", "{}"])',
    "args:\n  - --admin-password\n  - {}",
    "docker run x \\\n  --password \\\n  {} \\\n  img",
    "$ docker login -u bot -p {} reg.example.com",
    "sshpass -p '{}' ssh root@10.0.0.4",
    "redis-cli -h cache -a {} ping",
    "az login -u bot@x.example -p {}",
    "  501  mysql -h db -u app -p'{}' shop",
    "2024-03-01 12:00:01 CMD sshpass -p {} scp f h:",
    "zip -P {} out.zip file",
    "smbclient //srv/share -U corp/bob%{}",
    "ldapsearch -x -D cn=admin,dc=x -w {} -b dc=x",
    "sqlcmd -S srv -U sa -P {} -Q 'select 1'",
    "psexec \\\\srv -u corp\\bob -p {} cmd\r",
    "curl -u bob:{} https://h/x",
    "curl --user 'bob:{}' https://h/x",
    "wget --http-user=bob --http-password={} https://h/",
    "mongosh -u root -p {} --authenticationDatabase admin",
    "htpasswd -b .htpasswd bob {}",
    "echo 'bob:{}' | chpasswd",
    "The WiFi key is {} (guest network).",
    "pre-shared key: {}",
    "db.example.com:5432:shop:app:{}",
    "# host:port:db:user:password\nlocalhost:5432:*:bob:{}",
    "    10.1.2.3:5433:orders:svc_orders:{}",
    '$s = ConvertTo-SecureString "{}" -AsPlainText -Force',
    "ConvertTo-SecureString -String '{}' -AsPlainText -Force",
    "$p = ConvertTo-SecureString -AsPlainText -Force -String {}",
    "New-Object PSCredential('bob', (convertto-securestring '{}' -asplaintext -force))",
    "[System.Net.NetworkCredential]::new('bob','{}')",
    "'{}' | ConvertTo-SecureString -AsPlainText -Force",
    '<add key="DbPassword" value="{}" />',
    "<property name='password' value='{}'/>",
    '<property\n   name="javax.persistence.jdbc.password"\n   value="{}"/>',
    "<password>{}</password>",
    '<ds:password xsi:type="s">{}</ds:password>',
    '<input type="password" name="pw" value="{}">',
    '<add name="c" connectionString="Server=s;User ID=u;Password={};" />',
    '{"name": "DB_PASSWORD", "value": "{}"}',
    'env:\n- name: POSTGRES_PASSWORD\n  value: "{}"',
    '{"value": "{}", "name": "SMTP_PASSWORD"}',
    "| Field | Value |\n|---|---|\n| Host | h |\n| Password | {} |",
    "| Service | User | Password | Note |\n|:--|:--|:--:|--:|\n| Grafana | admin | {} | rotate |",
    "| Dienst | Benutzer | Kennwort |\n|---|---|---|\n| VPN | karl | {} |",
    "| Service | Mot de passe |\n|---|---|\n| wiki | {} |",
    "User | Password\n--- | ---\nbob | {}",
    "<table><tr><th>Password</th><td>{}</td></tr></table>",
    "name,email,password\nbob,b@x.example,{}",
    "user\tpassword\nbob\t{}",
    "+------+----------+\n| user | password |\n+------+----------+\n| bob  | {} |\n+------+----------+",
    "The password for the staging server is {}.",
    "password for jenkins: {}",
    "pw: {}",
    "PWD: {}",
    "admin password - {}",
    "login admin / {}",
    "Login: admin / {}",
    "Credentials: bob:{}",
    "creds are svc_app / {} (prod)",
    "user/pass: bob/{}",
    "Log in as admin with password {} and click Save.",
    'I signed in using the password "{}" yesterday.',
    "We changed the root password to {} on Monday.",
    "Your temporary password is: {}",
    "Das Passwort lautet {}",
    "Kennwort: {}",
    "Zugangsdaten: Benutzer karl, Passwort {}",
    "PW f\xfcr den Router ist {}",
    "Le mot de passe est {}",
    "mot de passe : {}",
    "La contrase\xf1a es {}",
    "contrase\xf1a: {}",
    "clave de acceso: {}",
    "la password \xe8 {}",
    "senha: {}",
    "wachtwoord: {}",
    "---\ntitle: Staging access\ntags: [ops]\n---\nStaging login is deploy with password {}; ask Ana.",
    "> Customer: my login is bob@x.example and my password is {}",
    "The admin password is `{}`.",
    "The **password** is **{}**",
    "Password:\n{}",
    "The root password:\n\n```\n{}\n```",
    "credentials:\n  username: bob\n  password: {}",
    "pw={};",
    "db password is {}, thanks",
    'String dbPassword = "{}";',
    'Password: "{}",',
    ":password => '{}',",
    "define('DB_PASSWORD', '{}');",
    "$password = '{}';",
    "my $passwd = q({});",
    "os.environ['ADMIN_PASSWORD'] = '{}'",
    "connect(host='h', passwd='{}')",
    '.withPassword("{}")',
    'props.setProperty("password", "{}");',
    'DriverManager.getConnection(url, "sa", "{}");',
    "CREATE USER bob WITH PASSWORD '{}';",
    "ALTER USER 'bob'@'%' IDENTIFIED BY '{}';",
    "CREATE LOGIN bob WITH PASSWORD = N'{}';",
    "[db]\r\npassword={}\r",
    "spring.datasource.password={}",
    "ansible_ssh_pass={}",
    "ansible_become_password: '{}'",
    "ANSIBLE_VAULT;1.1;AES256 x\nvault_password: {}",
    "const password: string = '{}';",
    '#define WIFI_PASSWORD "{}"',
    'const char* password = "{}";',
    '(setq my-password "{}")',
    'export FASTLANE_PASSWORD="{}"',
    "enable secret {}",
    "-password: old\n+password: {}",
    '@@ -1,2 +1,2 @@\n+  DB_PASS: "{}"',
    "host: db.int\nuser: reporting\npassword: {}\n# rotate in May",
    "* Grafana \u2013 admin / {}\n* Kibana \u2013 none",
    "> **Password:** `{}`",
    "The VPN password is now {}, please don't share.",
    "New password for user deploy: {}",
    "Bitte das Kennwort {} f\xfcr den Testserver benutzen.",
    "Passwort f\xfcr den Drucker: {}",
    "mot de passe du wifi : {}",
    "la contrase\xf1a del servidor es {}",
    "[2024-05-01 10:00:01] DEBUG auth: user=admin password={} ok=true",
    "INFO connecting with credentials {'user': 'svc', 'password': '{}'}",
    "$ export PGPASSWORD={} && psql -h db",
    "$ PGPASSWORD='{}' pg_dump shop",
    "mysql --host=db --user=app --password='{}' shop < dump.sql",
    'curl -X POST -d \'{"username":"bob","password":"{}"}\' https://h/login',
    "curl -d 'user=bob&password={}' https://h/login",
    "curl -F pass={} https://h",
    "http -a bob:{} https://h/api",
    "ssh bob@host  # pw {}",
    'psql "host=h user=u password={} dbname=d"',
    '  "adminPassword": { "value": "{}" },',
    "kubectl create secret generic db --from-literal=password={}",
    'echo "{}" | docker login -u bob --password-stdin',
    "docker run -e MYSQL_ROOT_PASSWORD={} -p 3306:3306 mysql:8",
    '<user name="tomcat" password="{}" roles="manager-gui"/>',
    '<Connection password="{}" user="x"/>',
    "<bind pass='{}' dn='cn=x'/>",
    "| Login | Passwort |\n| ----- | -------- |\n| hans | `{}` |",
    "| utilisateur | mot de passe | r\xf4le |\n|---|---|---|\n| anne | **{}** | admin |",
    "user;password;host\r\nroot;{};h1\r",
    'DB_CONN="Server=tcp:x,1433;User ID=sa;Password={};"',
    "mongodb://admin:{}@10.0.0.1:27017,10.0.0.2:27017/?replicaSet=r",
    "proxy=http://corp\\bob:{}@proxy.corp:8080",
    "git remote set-url origin https://bob:{}@git.example.com/r.git",
    "smtp://apikey:{}@smtp.example.net:587",
    "wpa_passphrase Home {}",
    "$cred = New-Object System.Management.Automation.PSCredential('bob', (ConvertTo-SecureString '{}' -AsPlainText -Force))",
    'Set-ADAccountPassword bob -NewPassword (ConvertTo-SecureString -AsPlainText "{}" -Force)',
    'net use * \\\\nas\\data "{}" /user:nas\\bob',
    "runas /user:admin cmd  (pw: {})",
    "Wifi: Guest / {}",
    "WLAN-Passwort: {}",
    "WIFI:T:WPA;S:Home;P:{};;",
    "ssh-keygen -t ed25519 -N '{}' -f k",
    "openssl enc -aes-256-cbc -k {} -in f",
    'ansible-playbook site.yml -e "ansible_become_pass={}"',
    "<!-- TODO remove: ftp pass {} -->",
    "// FIXME password '{}' hardcoded",
    "-- password for test db is '{}'",
    "\tpassword:\t{}\r",
    "PaSsWoRd={}",
    "\u0440\u0430s\u0455w\u043erd is {}",
    "p\u200ba\u200bs\u200bs\u200bw\u200bo\u200br\u200bd: {}",
    "Passw\xf6rt: {}",
    "<td>Passwort</td><td>{}</td>",
    "password%3A%20{}",
    "&quot;password&quot;:&quot;{}&quot;",
    '\\"db_password\\": \\"{}\\",',
    "my-login: bob@x.example:{}",
    "Acc\xe8s : login marie, mot de passe {}",
    "Usuario: juan, contrase\xf1a: {}",
    "user bob pass {} host h",
    "creds root:{} (ILO)",
    "The default credentials are admin:{}.",
    "Use bob / {} to log in.",
    "Sign in with user demo and password {}",
    'I told Ana that the password was "{}" last week',
    "KEYCLOAK_ADMIN_PASS={}\nKEYCLOAK_URL=x",
    '- BACKUP_PASS: "{}"',
    "#GRAFANA_PASS='{}'",
    '    "pass" : "{}",\r',
    "{'pass':'{}'}",
    "pass => '{}',",
    "<pass>{}</pass>",
    "$ svn up --username bob --password {}",
    "`keytool -storepass {} -list`",
    "mongodump -u app -p {} --out /b",
    "winexe -U corp/bob%{} //h cmd",
    "xfreerdp /u:bob /p:{} /v:h",
    "lftp -u bob,{} sftp://h",
    'psk: "{}"',
    "\twpa-psk {}",
    "machine ftp.example.net\n\tlogin anna\n\tpassword {}",
    "# ~/.netrc: machine api.h.example login x password {}",
    "`db1:5432:app:app:{}`",
    "> localhost:5433:*:anna:{}",
    "$sec = '{}' | convertto-securestring -asplaintext -force",
    "ConvertTo-SecureString -AsPlainText '{}' -Force",
    "NET USE X: \\\\FS01\\HR {} /USER:CORP\\anna",
    "net use \\\\10.0.0.3\\c$ /u:anna {}",
    '<entry key="db.password" value="{}"/>',
    "|Name|Password|\n|-|-|\n|a|{}|",
    "> | User | Pwd |\n> |---|---|\n> | x | {} |",
    "Password for anna = {}",
    "Our staging password: {} (do not share)",
    "login anna / {}",
    "Das Passwort f\xfcr den Server ist '{}'.",
    "Le mot de passe du serveur: {}",
    "Mi contrase\xf1a es {}",
    "pw={}",
    "passw: {}",
    "SSID Office, password {}",
    "username: anna, password: {}, role: x",
    "anna's password is {}",
    "password was changed to {}",
    "db\\_password \\= {}",
    "\u0440\u0430ss: {}",
)
"""Texts that give one of them away, at `{}`, some of them several times for other surroundings."""

DISGUISES: Mapping[str, Callable[[str], str]] = {
    "cyrillic": lambda text: _mixed_case(text, _CYRILLIC),
    "full-width": lambda text: _mixed_case(text, _FULL),
    "mathematical": lambda text: _mixed_case(text, _BOLD),
    "zero-width": "\u200b".join,
    "joiners": "\u2060".join,
    "bidi": lambda text: f"\u202d{text[:4]}\u202c{text[4:]}",
    "accents": lambda text: text.replace("a", "a\u0301"),
    "soft hyphens": lambda text: text.replace("s", "s\u00ad"),
    "variation selectors": lambda text: text.replace("e", "e\ufe0f").replace("a", "a\ufe0f"),
    "tags": lambda text: text[:3] + "\U000e0061" + text[3:],
    "no-break blanks": lambda text: text.replace(" ", "\u00a0"),
    "curly quotes": lambda text: text.replace('"', "\u201d"),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 of utf-16": lambda text: base64.b64encode(text.encode("utf-16-le")).decode(),
    "base64 url": lambda text: base64.urlsafe_b64encode(f"{text}?>~ and more".encode()).decode(),
    "base64 over lines": lambda text: base64.encodebytes(
        f"{text}\n{'more of the same ' * 9}".encode()
    ).decode(),
    "base64 twice": lambda text: base64.b64encode(base64.b64encode(text.encode())).decode(),
    "hex": lambda text: text.encode().hex(),
    "percent": lambda text: quote(text, safe=""),
    "percent all": lambda text: "".join(f"%{ord(char):02X}" for char in text),
    "entities": lambda text: "".join(f"&#{ord(char)};" for char in text),
    "hex entities": lambda text: "".join(f"&#x{ord(char):x};" for char in text),
    "quote entities": html.escape,
    "x escapes": lambda text: "".join(f"\\x{ord(char):02x}" for char in text),
    "u escapes": lambda text: "".join(f"\\u{ord(char):04x}" for char in text),
    "octal": lambda text: "".join(f"\\{ord(char):03o}" for char in text),
    "json": json.dumps,
    "json twice": lambda text: json.dumps(json.dumps({"a": text})),
    "escaped markdown": lambda text: re.sub(r"([_\-.*#=:'\"])", r"\\\1", text),
    "numbers": lambda text: str([ord(char) for char in text]),
    "hex numbers": lambda text: ", ".join(f"0x{ord(char):02x}" for char in text),
}
DISGUISED: Mapping[str, str] = {
    "a password": 'password = "«m12»"',
    "a key": "sk-ant-api03-«a80»AA",
    "a setting": "DB_PASSWORD=«m12» and more words",
}

PIECES: Mapping[str, str] = {
    "plus": 'key = "sk-ant-" + "api03-«a40»"',
    "plus three": "k = 'ghp_' + '«a18»' + '«a18»'",
    "plus over lines": 'key = ("sk-ant-api03-«a20»"\n       + "«a40»")',
    "implicit": 'key = ("ghp_«a16»"\n       "«a20»")',
    "implicit on a line": 'key = "ghp_«a16»" "«a20»"',
    "php": "$k = 'sk_live_' . '«a24»';",
    "lua": 'k = "sk_live_" .. "«a24»"',
    "sql": "SELECT 'ghp_' || '«a36»'",
    "vb": 'k = "ghp_" & "«a36»"',
    "name in pieces": '"pass" + "word" + "=«m12»"',
    "backslash": 'key = "ghp_«a16»\\\n«a20»"',
    "broken line": "token: ghp_«a18»\n«m18»",
    "broken quote": "> sk-ant-api03-«a30»\n> «m40»\n",
    "quoted-printable": "password=3D«m10»",
}


def encoded(seed: int) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield secrets that are disguised: how, the text, and what must not be sent of it."""
    for what, text in DISGUISED.items():
        plain, parts = drawn(text, seed)
        for how, disguise in DISGUISES.items():
            written = disguise(plain)
            hidden = parts if parts[0] in written else (written[len(written) // 2 :][:24], parts[0])
            yield f"{what}, {how}", f"Note: {written}\nend", hidden
    for how, text in PIECES.items():
        yield how, *drawn(text, seed)
