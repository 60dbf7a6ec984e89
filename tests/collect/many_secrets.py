"""Two hundred secrets in the places where evidence has them: what a bundle must not hold.

`promised` kinds are those that docs/bundle.md names; the others are what people expect of such a tool all the same. The rules
were written with an eye on every second one (`SEEN`); the first figure for `HELD_OUT` in docs/bundle.md says how they did on
what they did not know.
"""

import base64
import json
import random
import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import quote
from uuid import UUID

HEX = "0123456789abcdef"
LOW = string.ascii_lowercase + string.digits
MIXED = string.ascii_letters + string.digits
URL = MIXED + "-_"
B64 = MIXED + "+/"
CAPS = string.ascii_uppercase + string.digits
PROMISED, OTHER = True, False


@dataclass(frozen=True, slots=True)
class Plant:
    kind: str
    promised: bool
    text: str
    """What stands in a log."""
    gone: tuple[str, ...]
    """What must not be in the archive."""
    is_file: bool = False
    """A file of its own, without a newline at its end."""


def token(kind: str, length: int, alphabet: str = MIXED) -> str:
    """Random, the same each time, and with a digit: as a provider's generator makes them."""
    draw = random.Random(kind)
    made = [draw.choice(alphabet) for _ in range(length)]
    digits = [c for c in alphabet if c.isdigit()]
    if digits and not any(c.isdigit() for c in made):
        made[length // 2] = draw.choice(digits)
    return "".join(made)


def pem(kind: str, label: str = "RSA PRIVATE KEY", lines: int = 6, width: int = 64) -> list[str]:
    body = [token(f"{kind}{n}", width, B64) for n in range(lines)]
    return [f"-----BEGIN {label}-----", *body, token(f"{kind}!", 22, B64) + "==", f"-----END {label}-----"]


def plain(kind: str, front: str, secret: str, back: str = "", *, promised: bool) -> Plant:
    return Plant(kind, promised, f"{front}{secret}{back}", (secret,))


# Shapes: the beginning is cut in two, since scanners read this file too.

PROMISED_SHAPES: tuple[tuple[str, str], ...] = (
    ("aws", "AK" + "IA" + token("aws", 16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")),
    ("aws session", "AS" + "IA" + token("aws session", 16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")),
    ("google", "AI" + "za" + token("google", 35, URL)),
    ("google oauth", "ya" + "29." + token("google oauth", 68, URL)),
    ("google client", "GOC" + "SPX-" + token("google client", 28, URL)),
    ("hugging face", "h" + "f_" + token("hugging face", 34, string.ascii_letters)),
    ("hugging face 2", "h" + "f_" + token("hugging face 2", 34)),
    ("openai", "s" + "k-" + token("openai", 48)),
    ("openai project", "s" + "k-proj-" + token("openai project", 74, URL)),
    ("anthropic", "s" + "k-ant-api03-" + token("anthropic", 93, URL) + "AA"),
    ("nvidia", "nv" + "api-" + token("nvidia", 64, URL)),
    ("github", "gh" + "p_" + token("github", 36)),
    ("github app", "gh" + "s_" + token("github app", 36)),
    ("github fine", "github" + "_pat_" + token("github fine", 22) + "_" + token("github fine 2", 59)),
    ("gitlab", "gl" + "pat-" + token("gitlab", 20, URL)),
    ("slack bot", "xo" + "xb-" + token("a", 11, "123456789") + "-" + token("b", 12, "123456789") + "-" + token("slack", 24)),
    ("slack user", "xo" + "xp-" + token("c", 11, "123456789") + "-" + token("d", 12, "123456789") + "-" + token("slack u", 30)),
    ("wandb 2", "wandb" + "_v1_" + token("wandb 2", 70)),
    ("jwt", "ey" + "J" + token("j1", 33, URL) + "." + "eyJ" + token("j2", 60, URL) + "." + token("j3", 43, URL)),
)  # fmt: skip
OTHER_SHAPES: tuple[tuple[str, str], ...] = (
    ("databricks", "da" + "pi" + token("databricks", 32, HEX)),
    ("pypi", "py" + "pi-AgEIcHlwaS5vcmc" + token("pypi", 150, URL)),
    ("stripe", "sk" + "_live_" + token("stripe", 24)),
    ("stripe restricted", "rk" + "_test_" + token("stripe r", 40)),
    ("sendgrid", "S" + "G." + token("sg", 22, URL) + "." + token("sg2", 43, URL)),
    ("vault", "hv" + "s." + token("vault", 95, URL)),
    ("vault old", "s" + "." + token("vault old", 24)),
    ("replicate", "r8" + "_" + token("replicate", 37)),
    ("twilio", "S" + "K" + token("twilio", 32, HEX)),
    ("npm", "npm" + "_" + token("npm", 36)),
    ("docker hub", "dckr" + "_pat_" + token("docker", 27, URL)),
    ("digital ocean", "dop" + "_v1_" + token("do", 64, HEX)),
    ("groq", "gsk" + "_" + token("groq", 52)),
    ("xai", "xai" + "-" + token("xai", 80)),
    ("perplexity", "pplx" + "-" + token("pplx", 48)),
    ("langsmith", "lsv2" + "_pt_" + token("ls", 32, HEX) + "_" + token("ls2", 10, HEX)),
    ("grafana", "glsa" + "_" + token("glsa", 32) + "_" + token("glsa2", 8, HEX)),
    ("linear", "lin" + "_api_" + token("linear", 40)),
    ("notion", "nt" + "n_" + token("ntn", 11, "123456789") + token("ntn2", 35)),
    ("postman", "PM" + "AK-" + token("pmak", 24, HEX) + "-" + token("pmak2", 34, HEX)),
    ("shopify", "shp" + "at_" + token("shopify", 32, HEX)),
    ("tailscale", "ts" + "key-auth-" + token("ts", 12) + "-" + token("ts2", 32)),
    ("telegram", token("tg", 10, "123456789") + ":AA" + token("tg2", 33, URL)),
    ("discord", "M" + token("dc", 25, MIXED) + "." + token("dc2", 6, MIXED) + "." + token("dc3", 38, URL)),
    ("azure ad", token("az", 3) + "8" + "Q~" + token("az2", 34, MIXED + "_.~-")),
    ("fireworks", "f" + "w_" + token("fw", 24)),
    ("runpod", "rp" + "a_" + token("rp", 42, CAPS)),
    ("newrelic", "NR" + "AK-" + token("nr", 27, CAPS)),
    ("sentry", "sntry" + "u_" + token("sn", 64, HEX)),
    ("mailgun", "ke" + "y-" + token("mg", 32, HEX)),
    ("terraform", token("tf", 14) + "." + "atlasv1." + token("tf2", 65, URL)),
    ("pulumi", "pu" + "l-" + token("pul", 40, HEX)),
    ("gitlab runner", "gl" + "rt-" + token("glrt", 20, URL)),
    ("bedrock", "AB" + "SK" + token("absk", 120, B64)),
    ("atlassian", "ATA" + "TT3x" + token("att", 180, URL)),
    ("age", "AGE-SECRET-" + "KEY-1" + token("age", 58, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L")),
)  # fmt: skip
_SETTINGS: tuple[tuple[str, str], ...] = (
    ("in a sentence", "login with {} failed"),
    ("in a path", "/ckpt/run_{}/last.pt"),
    ("quoted", "client = Client('{}', retries=3)"),
    ("behind a rank", "[rank0]: using {}"),
    ("in brackets", "({})"),
)


def _shaped(shapes: Iterable[tuple[str, str]], *, promised: bool) -> list[Plant]:
    plants: list[Plant] = []
    for number, (kind, secret) in enumerate(shapes):
        where, line = _SETTINGS[number % len(_SETTINGS)]
        plants.append(Plant(f"{kind}, {where}", promised, line.format(secret), (secret,)))
    return plants


# The places: the same few secrets wherever people have met them.


def _coloured(secret: str) -> str:
    half = len(secret) // 2
    return f"\x1b[32m{secret[:4]}\x1b[1m{secret[4:half]}\x1b[0m{secret[half:]}\x1b[0m"


def _placed() -> list[Plant]:
    def gh(kind: str) -> str:
        return "gh" + "p_" + token(kind, 36)

    def made(kind: str, promised: bool, text: Callable[[str], str], *parts: Callable[[str], str]) -> Plant:
        secret = gh(kind)
        return Plant(kind, promised, text(secret), (secret, *(part(secret) for part in parts)))

    def b64(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    return [
        made("percent, in a query", PROMISED, lambda s: f"GET /x?next=%2Fa%3Ftoken%3D{s.replace('_', '%5F')}", lambda s: s.replace("_", "%5F")),
        made("percent, every letter", PROMISED, lambda s: "x=" + "".join(f"%{ord(c):02X}" for c in s), lambda s: "".join(f"%{ord(c):02X}" for c in s)),
        made("base64 of a token", PROMISED, lambda s: f"blob {b64(s)} sent", b64),
        made("base64 of json", PROMISED, lambda s: "blob " + b64(json.dumps({"t": s})) + " sent", lambda s: b64(json.dumps({"t": s}))),
        made("base64 of base64", PROMISED, lambda s: "blob " + b64(b64(s)) + " sent", lambda s: b64(b64(s))),
        made("base64 of a pair", PROMISED, lambda s: "conf " + b64(f"password={s}") + " sent", lambda s: b64(f"password={s}")),
        made("coloured", PROMISED, lambda s: f"using {_coloured(s)} now", lambda s: s[6:18], lambda s: s[20:]),
        made("coloured from its first letter", PROMISED, lambda s: f"\x1b[31m{s}\x1b[0m"),
        made("two texts, plus", OTHER, lambda s: f"t = '{s[:12]}' + '{s[12:]}'", lambda s: s[12:], lambda s: s[4:12]),
        made("two texts, side by side", OTHER, lambda s: f't = "{s[:20]}" "{s[20:]}"', lambda s: s[20:], lambda s: s[4:20]),
        made("wrapped at a backslash", OTHER, lambda s: f"curl -H {s[:26]}\\\n{s[26:]}", lambda s: s[26:], lambda s: s[4:26]),
        made("wrapped at 80 columns", OTHER, lambda s: "x" * 20 + f" {s[:30]}\n{s[30:]}", lambda s: s[4:30], lambda s: s[30:]),
        made("with a soft hyphen", OTHER, lambda s: f"use {s[:15]}\u00ad{s[15:]}", lambda s: s[4:15], lambda s: s[15:]),
        made("unicode escapes", OTHER, lambda s: '{"t": "' + s.replace("_", "\\u005f") + '"}', lambda s: s.replace("_", "\\u005f")),
        made("in a tuple of argv", PROMISED, lambda s: f"sys.argv = ['train.py', '--gh-token', '{s}']"),
        made("in a tqdm line", OTHER, lambda s: f"10%|#   | 1/9\r20%|##  | 2/9 {s}\r30%"),
        made("in yaml", PROMISED, lambda s: f"  github_token: {s}"),
        made("in xml", PROMISED, lambda s: f"<token>{s}</token>"),
        made("in html entities", OTHER, lambda s: f"&quot;{s}&quot;"),
        made("after a chinese word", OTHER, lambda s: f"\u4ee4\u724c{s}\u3002"),
    ]  # fmt: skip


# Values that a name gives away.

_PASSWORDS: tuple[tuple[str, str, bool], ...] = (
    ("password=", "password={}", PROMISED),
    ("json without a newline", '{{"user": "x", "password": "{}"}}', PROMISED),
    ("json without spaces", '{{"user":"x","password":"{}"}}', PROMISED),
    ("escaped json", '"{{\\"user\\": \\"x\\", \\"password\\": \\"{}\\"}}"', PROMISED),
    ("PGPASSWORD", "PGPASSWORD={} psql", PROMISED),
    ("yaml password", "db:\n  password: {}", PROMISED),
    ("passphrase", "ssh key passphrase: {}", PROMISED),
    ("--password", "train.py --password {} --lr 3", PROMISED),
    ("--password=", "train.py --db-password={}", PROMISED),
    ("argv of repr", "['run', '--password', '{}']", PROMISED),
    ("argv of json", '["run","--password","{}"]', PROMISED),
    ("argv over lines", '[\n  "run",\n  "--password",\n  "{}"\n]', PROMISED),
    ("url", "psql postgres://alice:{}@db.example.com/x", PROMISED),
    ("url without a user", "redis://:{}@cache:6379/0", PROMISED),
    ("passwd in a dict", "{{'user': 'x', 'passwd': '{}'}}", PROMISED),
    ("netrc", "machine x.example.com login bob password {}", PROMISED),
    ("toml", 'password = "{}"', PROMISED),
    ("MYSQL_ROOT_PASSWORD", "export MYSQL_ROOT_PASSWORD='{}'", PROMISED),
    ("name and value", '{{"name": "DB_PASSWORD", "value": "{}"}}', PROMISED),
    ("block of yaml", "password: |-\n    {}", PROMISED),
    ("name and value of yaml", "- name: DB_PASSWORD\n  value: {}", PROMISED),
    ("PWD", "Driver=x;UID=sa;PWD={};", OTHER),
    ("pwd=", "pwd={} host", OTHER),
    ("mysql -p", "mysql -u root -p{} db", OTHER),
    ("sshpass -p", "sshpass -p {} ssh node", OTHER),
    ("sshpass quoted", "sshpass -p '{}' ssh node", OTHER),
    ("curl -u", "curl -u alice:{} https://x.example.com", OTHER),
    ("docker login -p", "docker login -u bob -p {}", OTHER),
    ("redis-cli -a", "redis-cli -h cache -a {} ping", OTHER),
    ("openssl", "openssl rsa -passin pass:{} -in k", OTHER),
    ("password is", "the password is {}", OTHER),
    ("pass=", "smtp user=bob pass={}", OTHER),
    ("smb", "smbclient //s/x -U bob%{}", OTHER),
    ("htpasswd", "htpasswd -b users bob {}", OTHER),
    ("xml element", "<password>{}</password>", OTHER),
    ("header line", "X-Password: {}", OTHER),
)
_KEYS: tuple[tuple[str, str, str, bool], ...] = (
    ("aws secret", "AWS_SECRET_ACCESS_KEY={}", token("aws secret", 40, B64), PROMISED),
    ("aws secret of json", '{{"SecretAccessKey": "{}"}}', token("aws secret 2", 40, B64), PROMISED),
    ("aws session token", "AWS_SESSION_TOKEN={}", token("aws st", 120, B64), PROMISED),
    ("wandb key", "WANDB_API_KEY={}", token("wandb", 40, HEX), PROMISED),
    ("wandb login", "wandb login {}", token("wandb login", 40, HEX), PROMISED),
    ("wandb login relogin", "wandb login --relogin {}", token("wandb relogin", 40, HEX), PROMISED),
    ("api key header", "X-API-Key: {}", token("apikeyheader", 32), PROMISED),
    ("api_key of python", "client(api_key='{}')", token("apikeypy", 24), PROMISED),
    ("apiKey", '"apiKey": "{}"', token("apikeyjs", 24), PROMISED),
    ("azure account", "AccountName=x;AccountKey={};EndpointSuffix=core", token("acct", 86, B64) + "==", PROMISED),
    ("azure signature", "https://x.blob.core.windows.net/c?sv=2&sig={}", quote(token("sig", 43, B64) + "=", safe=""), PROMISED),
    ("bearer", "Authorization: Bearer {}", token("bearer", 40, URL), PROMISED),
    ("bearer of curl", "curl -H 'Authorization: Bearer {}' x", token("bearer2", 40, URL), PROMISED),
    ("basic", "authorization: Basic {}", base64.b64encode(b"alice:hunter2-9").decode(), PROMISED),
    ("cookie", "Cookie: sessionid={}; theme=dark", token("cookie", 32, LOW), PROMISED),
    ("client secret", "client_secret={}", token("cs", 32), PROMISED),
    ("client secret of json", '"client_secret": "{}"', token("cs2", 36, URL), PROMISED),
    ("private_key name", "private_key: {}", token("pk", 44, B64), PROMISED),
    ("secret key", "SECRET_KEY = '{}'", token("dj", 50, LOW), PROMISED),
    ("token of a query", "https://x.example.com/a?token={}&b=1", token("q", 32), PROMISED),
    ("hf token name", "HF_TOKEN: {}", token("hft", 20), PROMISED),
    ("--api-key list", "['train.py', '--api-key', '{}']", token("akl", 24), PROMISED),
    ("--api-key", "train.py --api-key {}", token("ak", 24), PROMISED),
    ("credentials", "credentials: {}", token("cred", 30), PROMISED),
    ("slack hook", "https://hooks.slack.com/services/{}", f"T{token('h1', 8, CAPS)}/B{token('h2', 10, CAPS)}/{token('h3', 24)}", PROMISED),
    ("docker auth", '{{"auths": {{"r.io": {{"auth": "{}"}}}}}}', base64.b64encode(b"bob:" + token("da", 20).encode()).decode(), OTHER),
    ("auth_token", "auth_token={}", token("at", 32), PROMISED),
    ("access token in url", "https://x.example.com/?access_token={}", token("ati", 40), PROMISED),
    ("refresh token", '"refresh_token": "{}"', "1//0" + token("rt", 60, URL), PROMISED),
    ("mlflow", "MLFLOW_TRACKING_TOKEN={}", token("mlf", 36, HEX), PROMISED),
    ("comet", "COMET_API_KEY={}", token("comet", 25), PROMISED),
    ("neptune", "token {}", base64.b64encode(json.dumps({"api_address": "https://x", "api_key": token("nep", 36, HEX)}).encode()).decode(), OTHER),
    ("datadog", "DD_API_KEY={}", token("dd", 32, HEX), PROMISED),
    ("cloudflare", "cloudflare_token = {}", token("cf", 40, URL), PROMISED),
    ("twilio auth", "twilio auth: {}", token("twa", 32, HEX), OTHER),
    ("ngc", "NGC_CLI: {}", token("ngc", 84, B64), OTHER),
    ("gcp key id", '"private_key_id": "{}"', token("gcp", 40, HEX), OTHER),
    ("an access key alone", "used {} for s3", token("aws alone", 40, MIXED), OTHER),
    ("a webhook secret", "webhook signing: wh" + "sec_{}", token("wh", 32), OTHER),
    ("license key", "license_key={}", "-".join(token(f"lic{n}", 5, CAPS) for n in range(5)), OTHER),
    ("encryption key", "ENCRYPTION_KEY={}", token("enc", 44, B64), OTHER),
    ("ssh host passphrase var", "SSH_PASSPHRASE={}", token("sshp", 14), PROMISED),
    ("pin of a vault", "unseal key 1: {}", token("unseal", 44, B64), OTHER),
    ("kubeconfig", "    client-key-data: {}", base64.b64encode(token("kc", 60, B64).encode()).decode(), OTHER),
    ("k8s secret", "kind: Secret\ndata:\n  db: {}", base64.b64encode(token("k8", 30).encode()).decode(), OTHER),
    ("teams hook", "https://x.webhook.office.com/webhookb2/{}", "@".join(str(UUID(int=random.Random(n).getrandbits(128))) for n in (1, 2)) + "/IncomingWebhook/" + token("teams", 32, HEX), OTHER),
    ("cookie of a response", "Set-Cookie: sid={}; Path=/", token("sc", 26), PROMISED),
    ("session key", "session_key='{}'", token("sk", 24), OTHER),
    ("proxy auth", "Proxy-Authorization: Basic {}", base64.b64encode(b"bob:s3cr3t-pass").decode(), PROMISED),
    ("x-goog", "x-goog-api-key: {}", token("xg", 39, URL), PROMISED),
)  # fmt: skip


def _named() -> list[Plant]:
    plants: list[Plant] = []
    for number, (kind, line, promised) in enumerate(_PASSWORDS):
        password = (
            "Tr0ub4dor&3" if number % 3 == 0 and "url" not in kind and "&" not in line else "c0rrect-horse"
        ) + token(kind, 4, LOW)
        plants.append(Plant(kind, promised, line.format(password), (password,), is_file=line.startswith(("{", "["))))
    for kind, line, secret, promised in _KEYS:
        plants.append(Plant(kind, promised, line.format(secret), (secret,), is_file=line.startswith("{")))
    return plants


def _odd_urls() -> list[Plant]:
    return [
        plain("url with a slash", "git clone https://alice:", "pa/ss" + token("slash", 6), "@git.example.com/a", promised=True),
        plain("url with an at", "mongodb+srv://bob:", "p@ss" + token("at", 6), "@db.example.com/x?y=1", promised=True),
        plain("url of a token alone", "https://", token("tokurl", 40), "@git.example.com/a/b", promised=True),
        plain("url with percent", "amqp://bob:", "p%40" + token("pc", 8), "@mq.example.com:5672", promised=True),
    ]  # fmt: skip


# Private keys in every dress.


def _keys() -> list[Plant]:
    def key(kind: str, promised: bool, dress: Callable[[list[str]], str], **more: object) -> Plant:
        lines = pem(kind, **more)  # type: ignore[arg-type]
        return Plant(kind, promised, dress(lines), tuple(lines[1:-1]))

    return [
        key("pem", PROMISED, "\n".join),
        key("pem behind ranks", PROMISED, lambda k: "\n".join(f"[rank0]: {line}" for line in k)),
        key("pem behind times", PROMISED, lambda k: "\n".join(f"2026-11-15 01:02:{n:02d},123 INFO {line}" for n, line in enumerate(k))),
        key("pem behind the time of docker", PROMISED, lambda k: "\n".join(f"2026-11-15T01:02:{n:02d}.123456789Z {line}" for n, line in enumerate(k))),
        key("pem behind torchrun", PROMISED, lambda k: "\n".join(f"[default0]:{line}" for line in k)),
        key("pem indented", PROMISED, lambda k: "key: |\n" + "\n".join(f"    {line}" for line in k)),
        key("pem escaped", PROMISED, lambda k: '{"private_key": "' + "\\n".join(k) + '\\n"}'),
        key("pem escaped twice", PROMISED, lambda k: '"{\\"k\\": \\"' + "\\\\n".join(k) + '\\"}"'),
        key("pem in quotes", PROMISED, lambda k: "\n".join(f'    "{line}\\n"' for line in k)),
        key("pem with carriage returns", PROMISED, "\r\n".join),
        key("pem, cut", PROMISED, lambda k: "\n".join(k[:-3])),
        key("pem behind ranks, cut", PROMISED, lambda k: "\n".join(f"[rank3]: {line}" for line in k[:-3])),
        key("openssh", PROMISED, "\n".join, label="OPENSSH PRIVATE KEY", width=70),
        key("openssh behind ranks", PROMISED, lambda k: "\n".join(f"[rank1]:{line}" for line in k), label="OPENSSH PRIVATE KEY", width=70),
        key("pgp", OTHER, "\n".join, label="PGP PRIVATE KEY BLOCK"),
        key("pem behind a pipe", PROMISED, lambda k: "\n".join(f"worker-0 | {line}" for line in k)),
        key("pem, two ranks at once", PROMISED, lambda k: "\n".join(f"[rank0]: {line}\n[rank1]: step {n}" for n, line in enumerate(k))),
        key("pem coloured", PROMISED, lambda k: "\n".join(f"\x1b[36m[rank0]\x1b[0m {line}" for line in k)),
        key("pem of base64", OTHER, lambda k: "data: " + base64.b64encode("\n".join(k).encode()).decode()),
        key("encrypted pem", PROMISED, lambda k: "\n".join([k[0], "Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,0123", "", *k[1:]])),
    ]  # fmt: skip


# People, hosts and addresses.


def _who_and_where() -> list[Plant]:
    def seen(kind: str, text: str, *gone: str, promised: bool = True) -> Plant:
        return Plant(kind, promised, text, gone)

    return [
        seen("ipv6 of nccl", "x NCCL INFO NET/Socket : Using [0]eth0:fe80::1a2b:3c4d%eth0<0>", "fe80::1a2b:3c4d"),
        seen("ipv6 of nccl, global", "x NCCL INFO Bootstrap : Using ib0:2a02:6b8:c00::17<0>", "2a02:6b8:c00::17"),
        seen("ipv6 of nccl with a port", "connect to fd12:3456:789a::5%ib1<46123> failed", "fd12:3456:789a::5"),
        seen("ipv6 in brackets", "tcp://[2001:db8:77::9]:29500", "2001:db8:77::9"),
        seen("ipv6 in full", "peer 2001:0db8:85a3:0000:0000:8a2e:0370:7334 gone", "2001:0db8:85a3:0000:0000:8a2e:0370:7334"),
        seen("ipv4 of nccl", "NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.77.3.4<0>", "10.77.3.4"),
        seen("ipv4 in a name", "wrote /logs/log_10.77.3.5_rank0.txt", "10.77.3.5"),
        seen("ipv4 with a mask", "route 172.22.8.0/21 via 172.22.8.1", "172.22.8.0", "172.22.8.1"),
        seen("ipv4 public", "peer 93.184.216.34:443 reset", "93.184.216.34"),
        seen("ipv4 percent", "init_method=tcp%3A%2F%2F10.77.3.6%3A29500", "10.77.3.6"),
        seen("mail", "ask marvin.k@lab.example.edu about it", "marvin.k@lab"),
        seen("mail in a name", "/logs/marvin@lab.example.edu_rank_0.log", "marvin@lab"),
        seen("mail with a plus", "Reported-by: <zoe+ci@corp.example.org>", "zoe+ci"),
        seen("home", '  File "/home/zaphod.b/code/train.py", line 3, in f', "zaphod.b"),
        seen("home of a mac", "/Users/trillian/x.py", "trillian"),
        seen("user variable", "USER=ford.p LOGNAME=ford.p", "ford.p"),
        seen("mac address", "eth0 0c:42:a1:7f:33:9b up", "0c:42:a1:7f:33:9b"),
        seen("guid", "Port GUID: 0x0c42a103007f339b", "0c42a103007f339b"),
        seen("host of a url", "tcp://heartofgold-17:29500", "heartofgold-17"),
        seen("host in full", "dgx-042.prod.magrathea.example.com:12:12 [0] NCCL INFO x", "dgx-042", "magrathea"),
    ]  # fmt: skip


ALL: tuple[Plant, ...] = (
    *_shaped(PROMISED_SHAPES, promised=True),
    *_shaped(OTHER_SHAPES, promised=False),
    *_placed(),
    *_named(),
    *_odd_urls(),
    *_keys(),
    *_who_and_where(),
)
SEEN, HELD_OUT = ALL[::2], ALL[1::2]
