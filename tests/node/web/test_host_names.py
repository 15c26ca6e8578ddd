"""Names that a server answers to, in every way that they can be written."""

import pytest

from pykraft.configuration.keys import ConfigError
from pykraft.node.config import load_server_config
from pykraft.node.web.host_names import AllowedHosts, is_same_origin, normal_name

MINE = AllowedHosts({"kafka-1.example", "console"})
NODE = """\
process.roles=controller
node.id=1
listeners=CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:9093
log.dirs=/nowhere
"""


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LocalHost", "localhost.", "localhost:8080", "localhost.:1", "localhost:65535"),
        *("127.0.0.1", "127.0.0.1:8080", "127.0.0.1.", "0.0.0.0:80", "10.0.0.5:9464", "8.8.8.8"),
        *("[::1]", "[::1]:8080", "[::]", "[2001:DB8::1]:80", "[::ffff:127.0.0.1]"),
        *("kafka-1.example", "KAFKA-1.Example:80", "kafka-1.example.", "console:9464"),
    ],
)
def test_own_names_and_ip_addresses_are_answered(host: str) -> None:
    assert MINE.allow([host], "/console")


@pytest.mark.parametrize(
    "host",
    [
        # Of strangers.
        *(
            "evil.example",
            "evil.example:8080",
            "x",
            "localhost.evil.example",
            "evil-localhost",
            "mylocalhost",
        ),
        *("evil.localhost", "localhostx", "127.0.0.1.evil.example", "127.0.0.1.nip.io:80", "evil.example."),
        *(
            "a.kafka-1.example",
            "kafka-1.example.evil.example",
            "kafka-1.examples",
            "example",
            "afka-1.example",
        ),
        # What only looks like an address.
        *("127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "127.0.0.01", "256.0.0.1", "127.0.0.1.1", "::1"),
        *(
            "[::1",
            "::1]",
            "[]",
            "[evil.example]",
            "[::1].evil.example",
            "[127.0.0.1]",
            "[::1%25eth0]",
            "[::1%eth0]",
        ),
        *("[::1]evil.example", "[[::1]]", "[::1]:80:80"),
        # What is no name and port.
        *("", " ", ":80", ".", "localhost..", ".localhost", "localhost:", "localhost:x", "localhost:-1"),
        *(
            "localhost:999999",
            "localhost:80:80",
            "localhost:٨٠",
            "localhost:80 ",
            " localhost",
            "localhost\t",
        ),
        *("localhost\n", "localhost\x00", "local host", "localhost,evil.example", "localhost/evil.example"),
        *("evil.example@localhost", "localhost@evil.example", "user:password@localhost:80", "@localhost"),
        *("http://localhost", "localhost#evil", "localhost?", "localhost\\evil.example", "*", "%6cocalhost"),
        *("\uff2cOCALHOST", "localhost。", "127。0。0。1", "\u212aafka-1.example", "consolé", "\udcff"),
    ],
)
def test_every_other_name_is_refused(host: str) -> None:
    assert not MINE.allow([host], "/console")


@pytest.mark.parametrize(
    "hosts", [[], ["localhost", "localhost"], ["localhost", "evil.example"], ["evil.example", "localhost"]]
)
def test_request_has_one_name(hosts: list[str]) -> None:
    assert not MINE.allow(hosts, "/console")


@pytest.mark.parametrize(
    ("target", "is_allowed"),
    [
        ("/", True),
        ("//evil.example/console", True),  # a path of this server
        ("/http://evil.example/", True),
        ("*", True),
        ("http://localhost:8080/console", True),
        ("HTTP://127.0.0.1", True),
        ("http://[::1]/?a=http://evil.example", True),
        ("http://evil.example/console", False),
        ("http://evil.example?//localhost/", False),
        ("http://evil.example#@localhost/", False),
        ("http://localhost@evil.example/", False),
        ("http://evil.example@localhost/", False),
        ("http://localhost.evil.example/", False),
        ("http://[evil/", False),
        ("http:///console", False),
        ("http:console", False),
        ("evil.example:443", False),
        ("localhost:443", False),
        ("console", False),
        ("", False),
    ],
)
def test_name_in_the_request_line_counts_as_well(target: str, is_allowed: bool) -> None:
    assert MINE.allow(["localhost"], target) == is_allowed
    assert not MINE.allow(["evil.example"], target)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:8080", "localhost:8080"),
        ("http://LOCALHOST:8080", "localhost:8080"),
        ("http://localhost", "localhost"),
        ("http://localhost", "localhost:80"),
        ("http://localhost:80", "localhost"),
        ("http://[::1]:8080", "[::1]:8080"),
        ("https://console.example", "console.example"),  # something before this server ends TLS
        ("https://console.example", "console.example:443"),
        ("http://localhost.:1", "localhost:1"),
    ],
)
def test_own_origin(origin: str, host: str) -> None:
    assert is_same_origin(origin, host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://evil.example", "localhost:8080"),
        ("http://localhost", "localhost:8080"),
        ("http://localhost:8081", "localhost:8080"),
        ("http://localhost:8080", "localhost"),
        ("https://localhost", "localhost:80"),
        ("http://127.0.0.1:8080", "localhost:8080"),
        ("http://localhost.evil.example:8080", "localhost:8080"),
        ("http://evil.example@localhost:8080", "localhost:8080"),
        ("http://localhost:8080@evil.example", "localhost:8080"),
        ("http://localhost:8080/", "localhost:8080"),
        ("http://localhost:8080,http://evil.example", "localhost:8080"),
        ("http://localhost:8080 http://evil.example", "localhost:8080"),
        ("null", "localhost:8080"),
        ("", "localhost:8080"),
        ("localhost:8080", "localhost:8080"),
        ("//localhost:8080", "localhost:8080"),
        ("file://localhost:8080", "localhost:8080"),
        ("chrome-extension://localhost:8080", "localhost:8080"),
        ("http:localhost:8080", "localhost:8080"),
        ("http://", ""),
    ],
)
def test_origin_of_another_site(origin: str, host: str) -> None:
    assert not is_same_origin(origin, host)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Kafka-1.Example.", "kafka-1.example"),
        ("console", "console"),
        ("my_host", "my_host"),
        ("console:80", None),
        ("*", None),
        ("*.example", None),
        (".example", None),
        ("a..b", None),
        ("-a", None),
        ("a-", None),
        ("http://console", None),
        ("::1", None),
        ("", None),
        ("x" * 64, None),
        ("x" * 63, "x" * 63),
        (".".join(["x" * 49] * 6), None),
        ("consolé", None),
    ],
)
def test_names_are_compared_in_one_form(given: str, name: str | None) -> None:
    assert normal_name(given) == name


def names(**properties: str) -> frozenset[str]:
    given = {f"pykraft.http.{name.replace('_', '.')}": value for name, value in properties.items()}
    return load_server_config(NODE, given).http_hosts


def test_configured_names_and_the_listeners_own_are_answered() -> None:
    assert names() == frozenset()
    assert names(allowed_hosts="Console.Example , kafka-1") == {"console.example", "kafka-1"}
    assert names(listener="Kafka-1.Example:9464") == {"kafka-1.example"}
    assert "kafka-2" in names(listener="kafka-1:9464", allowed_hosts="kafka-2")
    for listener in ("0.0.0.0:9464", "[::]:9464", "127.0.0.1:0"):
        hosts = AllowedHosts(names(listener=listener))
        assert hosts.allow(["10.0.0.5:9464"], "/") and not hosts.allow(["kafka-1:9464"], "/")


@pytest.mark.parametrize(
    "given", ["*", "*.example", "http://console", "console:9464", "a b", "console,,x y", "[::1]"]
)
def test_configured_name_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"pykraft\.http\.allowed\.hosts"):
        names(allowed_hosts=given)
