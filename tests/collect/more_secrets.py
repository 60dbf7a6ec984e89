"""Three hundred more secrets, in the places that `many_secrets` does not have: shells, launchers, other languages, tables, wrapped lines.

They were written against finished rules, to see what gets through (docs/bundle.md has that figure). `@@` stands for the secret.
"""

import base64
import random
import string
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote

from collect.many_secrets import B64, CAPS, HEX, MIXED, OTHER, PROMISED, URL, Plant, pem, token

_HEADS = ("Winter", "dragon", "Hunter", "sommer", "Pa$$w", "qwert", "letmein")


def _password(kind: str) -> str:
    """As people make them: a word, a sign and a few characters."""
    draw = random.Random(kind)
    return draw.choice(_HEADS) + draw.choice("!_.+-") + token(kind, 5)


def _in_places(
    places: Iterable[str],
    make: Callable[[str], str],
    *,
    promised: bool,
    seen: Callable[[str], str] = lambda secret: secret,
) -> Iterator[Plant]:
    for place in places:
        secret = make(place)
        text = place.replace("@@", seen(secret))
        yield Plant(place[:40], promised, text, (seen(secret),), is_file=text.startswith(("{", "[", "<")))


PASSWORD_PLACES = (
    "<property><name>fs.s3a.secret.key</name><value>@@</value></property>", "  <name>javax.jdo.option.ConnectionPassword</name>\n  <value>@@</value>",
    "+ export DB_PASSWORD=@@", "++ PGPASSWORD=@@ psql -h db", "Namespace(lr=0.1, password='@@', user='bob')", "Config(db=DB(user='x', password='@@'), n=2)",
    "      DB_PASSWORD:          @@", "DB_PASSWORD:\t@@", "  password:\n    @@", '  "password":\n      "@@",', "os.environ['DB_PASSWORD'] = '@@'",
    'cfg["password"] = "@@"', "[('user', 'bob'), ('password', '@@')]", '("password", "@@")', "<password>@@</password>", '<add key="DbPassword" value="@@" />',
    '<string name="password">@@</string>', 'password := "@@"', "password => '@@'", "password -> @@", "\u2502 password = '@@' \u2502", "locals: {'password': '@@', 'n': 3}",
    "{'db': {'password': b'@@'}}", 'password: !!str "@@"', "password: &anchor @@", "[db]\npassword = @@", 'password = """@@"""', 'msg="{\\"password\\":\\"@@\\"}"',
    'msg="{\\\\\\"password\\\\\\":\\\\\\"@@\\\\\\"}"', "&quot;password&quot;:&quot;@@&quot;", "jdbc:mysql://db/x?user=u&password=@@&ssl=1",
    "Server=db;Uid=sa;Password=@@;Encrypt=yes", "psql 'host=db user=x password=@@'", "+db.password=@@", "db/password: @@", "--db-password @@", "['train.py', '--password', '@@']",
    "machine db.x login bob password @@", "| password | @@ |", "PASSWORD=@@\r", "Password for bob: @@", "ssh_passphrase=@@", "REDIS_PASSWORD_DEV=@@", "password1=@@", "password_2: @@",
    "passWord: '@@'", "PassWord=@@", "password = dict(value='@@')", '{"name":"DB_PASSWORD","value":"@@"}', 'env:\n- name: MYSQL_PASSWORD\n\n  value: "@@"',
    "set password '@@'", "ALTER USER bob WITH PASSWORD '@@';", "passwords: ['@@']", '{"passwords": {"db": "@@"}}', "passwords:\n  - @@", "set DB_PASSWORD @@", "setenv DB_PASSWORD @@",
    "$env:DB_PASSWORD = '@@'", "ENV DB_PASSWORD @@", "-Dpassword=@@", "password=[@@]", "helm upgrade x --set db.password=@@", "  - DB_PASSWORD=@@", "'password' => '@@',", ':password => "@@"',
    "{User:bob Password:@@ Host:y}", 'password: Some("@@")', '"Password"="@@"', "--password \\\n  @@", "[rank0]: --password\n[rank0]: @@", "[rank0]: - name: DB_PASSWORD\n[rank0]:   value: @@",
    "curl -d '{\"password\":\"@@\"}' u", "mount -o username=x,password=@@,vers=3", 'level=info msg=x password="@@ zz"', "E1118 login(user='x', password='@@'): 401", "(password=@@)",
    "self._password = '@@'", "password=@@\x1b[0m", '\x1b[34m"password"\x1b[0m: \x1b[32m"@@"\x1b[0m', "password=;@@", "password: ,@@", "password=<@@>", "password='it\\'s @@'", '"password": "q\\"@@"',
)  # fmt: skip
TOKEN_PLACES = (
    "HF_TOKEN:            @@", "os.environ['HF_TOKEN']='@@'", "('api_key', '@@')", "headers={'X-Api-Key': '@@'}", 'curl -H "PRIVATE-TOKEN: @@" u', "{'Authorization': 'Bearer @@'}",
    'headers.set("Authorization", "Token @@")', "(b'authorization', b'Bearer @@')", "OPENAI_API_KEY_PROD=@@", "API_KEY_2=@@", "TOKEN_GITHUB=@@", "SECRET_KEY_BASE=@@",
    '"SecretAccessKey": "@@"', "SharedAccessKey=@@", "cookies={'sid': '@@'}", "- --api-key\n- @@", "--api-key \\\n    @@", "wandb: api key: @@", "WANDB_API_KEY @@", "\u2502 api_key = '@@' \u2502",
    "api_key                = @@", "token|@@|", "<token>@@</token>", "token -> @@", "token := @@", 'token: Some("@@")', "api_key=SecretStr('@@')", '{"args":["--token","@@"]}', "x-api-key:@@",
    "//registry.npmjs.org/:_authToken=@@", "\x1b[1mtoken\x1b[0m=\x1b[33m@@\x1b[0m", "credentials: {'key': '@@'}", "'x-api-key': b'@@'", "client_secret\t=\t@@", "X-Amz-Signature=@@",
)  # fmt: skip
OTHER_PLACES = (
    "curl --user svc:@@ https://nexus.corp/repo", "echo '@@' | kinit svc-train@CORP",
    "sshpass -p '@@' ssh x", "echo @@ | docker login --password-stdin", "echo '@@' | sudo -S ls", "kinit <<< @@", "openssl enc -aes256 -k @@", "7z x -p@@ a.7z", "unzip -P @@ a.zip",
    "snowsql -p @@", "mongosh -u x -p @@", "db:5432:prod:bob:@@", "{'pw': '@@'}", "db_pass: @@", '"pass": "@@"', "pwd: @@", "pass = @@", "requirepass @@", "CREATE USER bob IDENTIFIED BY '@@'",
    "PASS: '@@'", "secret=@@", "passcode: @@", "net use z: \\\\x\\y @@ /user:bob", "user/pw = bob/@@",
)  # fmt: skip
SHAPE_PLACES = (
    "n:12:12 [0] NCCL INFO NCCL_X set by environment to @@", "remote: https://oauth2:@@@gitlab.x.com/a.git", "origin\thttps://@@@github.com/x/y (fetch)", "b'@@'", "url=https://h/x?k=@@&y=1",
    '{"a":["@@"]}', '<a href="https://x/@@">', "x_@@_y", "\u201c@@\u201d", "`@@`", "a=@@;b=2", "50%|##| 1/2 @@\r60%|###| 2/2", "np.str_('@@')",
)  # fmt: skip
SHAPES: tuple[Callable[[str], str], ...] = (
    lambda kind: "AK" + "IA" + token(kind, 16, CAPS),
    lambda kind: "h" + "f_" + token(kind, 34, string.ascii_letters),
    lambda kind: "s" + "k-proj-" + token(kind, 60, URL),
    lambda kind: "gh" + "p_" + token(kind, 36),
    lambda kind: "xo" + "xb-" + token(kind, 12, string.digits) + "-" + token(kind + "2", 24),
)
_ENCODED: tuple[tuple[bool, Callable[[str], str]], ...] = (
    (PROMISED, lambda secret: base64.b64encode(secret.encode()).decode()),
    (PROMISED, lambda secret: base64.b64encode(f'{{"auth": "{secret}"}}'.encode()).decode()),
    (PROMISED, lambda secret: "".join(f"%{ord(c):02x}" for c in secret)),
    (PROMISED, lambda secret: quote(f"x={secret}&y", safe="")),
    (OTHER, lambda secret: "".join(f"\\x{ord(c):02x}" for c in secret)),
    (OTHER, lambda secret: "".join(f"&#{ord(c)};" for c in secret)),
)  # fmt: skip
KEY_DRESSES: tuple[Callable[[list[str]], str], ...] = (
    lambda key: "\n".join(f"Nov 18 02:01:0{n} gpu-1 train[12]: {line}" for n, line in enumerate(key)),
    lambda key: "\n".join(f"+{line}" for line in key),
    lambda key: "\n".join(f"{n:6d}\t{line}" for n, line in enumerate(key)),
    lambda key: "\n".join(f"pod/t-0 t 2026-11-18T01:02:0{n}Z stderr F {line}" for n, line in enumerate(key)),
    lambda key: repr("\n".join(key)),
    " ".join,
)
LISTINGS = (
    "A=1\nHOME=/root\nMY_THING=@@\nB=2\nC=3\nD=4\n",
    "[rank0]: A=1\n[rank0]: HOME=/root\n[rank0]: MY_THING=@@\n[rank0]: B=2\n[rank0]: C=3\n[rank0]: D=4\n",
    "environ({'A': '1', 'MY_THING': '@@', 'C': '3'})",
    "{'PATH': '/bin', 'HOME': '/root', 'MY_THING': '@@', 'LANG': 'C'}",
    "environ({'A': '1',\n         'MY_THING': '@@',\n         'C': '3'})",
    '[{"Config": {"Env": [\n "PATH=/bin",\n "MY_THING=@@"\n], "Cmd": []}}]',
)


def _shaped() -> Iterator[Plant]:
    for shape in SHAPES:
        yield from _in_places(SHAPE_PLACES, shape, promised=True)
        for number, (promised, encoded) in enumerate(_ENCODED):
            yield from _in_places((f"blob{number} @@ sent",), shape, promised=promised, seen=encoded)


def _keys() -> Iterator[Plant]:
    for number, dress in enumerate(KEY_DRESSES):
        key = pem(f"dress {number}", "PRIVATE KEY", 4)
        yield Plant(f"key in dress {number}", PROMISED, dress(key), tuple(key[2:4]))


MORE: tuple[Plant, ...] = (
    *_in_places(PASSWORD_PLACES, _password, promised=True),
    *_in_places(TOKEN_PLACES, lambda kind: token(kind, 32, HEX), promised=True),
    *_in_places(TOKEN_PLACES, lambda kind: token(kind + "2", 28, MIXED), promised=True),
    *_in_places(("SESSION_TOKEN=@@", '"token": "@@"', "api_key: @@"), lambda kind: token(kind, 1200, HEX), promised=True),
    *_in_places(OTHER_PLACES, _password, promised=False),
    *_in_places(("aws_secret_access_key = @@", "encryption_key=@@"), lambda kind: token(kind, 40, B64), promised=True),
    *_in_places(LISTINGS, lambda kind: "correcthorse" + token(kind, 4, string.ascii_lowercase), promised=True),
    *_shaped(),
    *_keys(),
)  # fmt: skip
