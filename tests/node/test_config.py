"""server.properties: what is read, what is refused and with which message."""

import logging

import pytest

from pykraft.configuration.keys import ConfigError
from pykraft.node.broker_settings import broker_config, controller_config
from pykraft.node.config import load_server_config, parse_listener

COMBINED = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
log.dirs=/a,/b
"""


def test_a_combined_node_is_read() -> None:
    config = load_server_config(COMBINED + "log.retention.hours=2\nlog.segment.bytes=2000000\n")
    assert (config.is_broker, config.is_controller, config.node_id) == (True, True, 1)
    assert config.log_dirs == ("/a", "/b")
    assert config.metadata_log_dir == "/a"
    (listener,) = config.broker_listeners
    assert (listener.name, listener.host, listener.advertised_host) == ("PLAINTEXT", "", "localhost")
    assert config.controller_listener is not None
    assert config.controller_listener.port == 9093
    assert config.topic_defaults == {"retention.ms": "7200000", "segment.bytes": "2000000"}
    assert config.controller_client_listeners == ()


@pytest.mark.parametrize("roles", ["broker,controller", "controller"])
def test_further_controller_listeners_are_for_clients(roles: str) -> None:
    clients = "PLAINTEXT://:9092," if "broker" in roles else ""
    config = load_server_config(
        COMBINED,
        {
            "process.roles": roles,
            "listeners": f"{clients}KAFKA://host1:9094,CONTROLLER://localhost:9093,ALSO://host1:9095",
            "controller.listener.names": "CONTROLLER,KAFKA,ELSEWHERE,KAFKA,ALSO",
        },
    )
    assert config.controller_listener is not None and config.controller_listener.port == 9093
    found = config.controller_client_listeners
    assert [(one.name, one.host, one.port) for one in found] == [
        ("KAFKA", "host1", 9094),
        ("ALSO", "host1", 9095),
    ]
    assert all(one.name == "PLAINTEXT" for one in config.broker_listeners)


def test_an_override_precedes_the_file() -> None:
    assert load_server_config(COMBINED, {"node.id": "1", "log.dirs": "/c"}).log_dirs == ("/c",)


def test_a_finer_unit_precedes_a_coarser_one() -> None:
    config = load_server_config(COMBINED + "log.retention.hours=2\nlog.retention.minutes=3\n")
    assert config.topic_defaults["retention.ms"] == "180000"
    config = load_server_config(COMBINED + "log.retention.hours=2\nlog.retention.ms=7\n")
    assert config.topic_defaults["retention.ms"] == "7"


def test_settings_of_the_file_reach_the_broker_and_the_controller() -> None:
    config = load_server_config(
        COMBINED + "delete.topic.enable=false\nleader.imbalance.check.interval.seconds=2\nbroker.rack=r\n"
    )
    controller = controller_config(config)
    assert not controller.delete_topic_enable and controller.leader_imbalance_check_interval_ms == 2000
    assert broker_config(config, "c").rack == "r"


def test_a_key_that_only_kafka_uses_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load_server_config(COMBINED + "num.network.threads=3\n")
    assert "num.network.threads" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"log.retension.ms": "1"}, r"did you mean log.retention.ms\?"),
        ({"retention.ms": "1"}, r"did you mean log.retention.ms\?"),
        ({"max.message.bytes": "1"}, r"did you mean message.max.bytes\?"),
        ({"process.roles": "leader"}, "process.roles"),
        ({"node.id": "-1"}, "node.id"),
        ({"node.id": "2"}, "controller.quorum.voters lacks node.id 2"),
        ({"process.roles": "broker", "listeners": "PLAINTEXT://:9092"}, "has no controller role"),
        ({"listeners": "PLAINTEXT://:9092"}, "listeners has no CONTROLLER"),
        ({"listeners": "CONTROLLER://:9093"}, "at least one listener"),
        ({"listeners": "nonsense"}, "NAME://host:port"),
        (
            {"listeners": "SSL://:1,CONTROLLER://:2", "listener.security.protocol.map": "SSL:SSL"},
            "only PLAINTEXT",
        ),
        ({"controller.quorum.voters": "1@localhost"}, "'localhost' is not host:port"),
        ({"controller.quorum.voters": "one@localhost:1"}, "id@host:port"),
        ({"controller.quorum.voters": "1@localhost:65536"}, "'localhost:65536' is not host:port"),
        ({"controller.quorum.voters": "1@localhost:\u00b2"}, "is not host:port"),
        ({"controller.quorum.voters": "1@::1:9093"}, "write the IPv6 address of '::1:9093' in brackets"),
        ({"listeners": "PLAINTEXT://:\u00b2"}, "NAME://host:port"),
        ({"controller.quorum.voters": "1@h:1,1@h:2"}, "twice"),
        ({"inter.broker.listener.name": "INSIDE"}, "INSIDE"),
        ({"advertised.listeners": "PLAINTEXT://:9092"}, "host that clients can reach"),
        ({"log.segment.bytes": "ten"}, "ten for configuration log.segment.bytes: not a number"),
        ({"log.retention.hours": "ten"}, "ten for configuration log.retention.hours: not a number"),
        ({"log.cleanup.policy": "burn"}, "burn for configuration log.cleanup.policy: "),
        ({"log.dirs": "/a,/b,/a/"}, "log.dirs names a directory twice"),
        ({"log.dirs": "", "log.dir": " , "}, "log.dirs or log.dir must name at least one directory"),
        (
            {
                "process.roles": "broker",
                "node.id": "2",
                "listeners": "PLAINTEXT://:9092,KAFKA://:9094",
                "controller.listener.names": "CONTROLLER,KAFKA",
            },
            "listeners has KAFKA, but process.roles is broker",
        ),
        ({"controller.quorum.fetch.timeout.ms": "0"}, "controller.quorum.fetch.timeout.ms: .* at least 1"),
        ({"group.consumer.assignors": ""}, "group.consumer.assignors must name"),
        ({"group.consumer.session.timeout.ms": "5000"}, "group.consumer.heartbeat.interval.ms must be less"),
        ({"group.max.session.timeout.ms": "5"}, "group.min.session.timeout.ms must not exceed"),
        ({"log.roll.hours": "0"}, "0 for configuration log.roll.hours: Value must be at least 1"),
        ({"broker.session.timeout.ms": "1500"}, "must be less than broker.session.timeout.ms"),
    ],
)
def test_impossible_settings_are_refused_by_name(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_server_config(COMBINED, change)


SECURED = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")


@pytest.mark.parametrize("protocol", SECURED)
@pytest.mark.parametrize("mapped", [False, True])
def test_listener_with_a_security_protocol_is_refused(protocol: str, mapped: bool) -> None:
    change = {"listeners": f"{protocol}://:9092,CONTROLLER://localhost:9093"}
    if mapped:
        change["listener.security.protocol.map"] = f"CONTROLLER:PLAINTEXT,{protocol}:{protocol}"
    with pytest.raises(ConfigError, match=f"listener {protocol}: security protocol {protocol} is not served"):
        load_server_config(COMBINED, change)


@pytest.mark.parametrize("protocol", SECURED)
def test_controller_listeners_with_a_security_protocol_are_also_refused_on_brokers(protocol: str) -> None:
    text = "process.roles=broker\nnode.id=7\ncontroller.quorum.bootstrap.servers=h:1\n"
    assert load_server_config(text + "controller.listener.names=CONTROLLER\n").is_broker
    with pytest.raises(ConfigError, match=f"listener {protocol}: .* is not served"):
        load_server_config(text + f"controller.listener.names={protocol}\n")


def test_protocol_of_a_listener_comes_from_the_map_or_from_a_name_known_to_kafka() -> None:
    plain = {"listeners": "SSL://:9092,CONTROLLER://localhost:9093"}
    plain["listener.security.protocol.map"] = "ssl:plaintext,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL"
    (listener,) = load_server_config(COMBINED, plain).broker_listeners
    assert (listener.name, listener.security_protocol) == ("SSL", "PLAINTEXT")
    with pytest.raises(ConfigError, match="listener INSIDE has no security protocol"):
        load_server_config(COMBINED, {"listeners": "INSIDE://:9092,CONTROLLER://localhost:9093"})
    with pytest.raises(ConfigError, match="listener CONTROLLER has no security protocol"):
        load_server_config(COMBINED, {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"})
    with pytest.raises(ConfigError, match="TLS is not a security protocol"):
        load_server_config(COMBINED, {"listener.security.protocol.map": "PLAINTEXT:TLS"})


@pytest.mark.parametrize(
    "key",
    [
        "ssl.keystore.location",
        "sasl.enabled.mechanisms",
        "authorizer.class.name",
        "super.users",
        "allow.everyone.if.no.acl.found",
        "principal.builder.class",
        "delegation.token.secret.key",
        "listener.name.internal.ssl.keystore.location",
        "listener.name.internal.scram-sha-256.sasl.jaas.config",
    ],
)
def test_security_key_without_effect_is_refused_by_name(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: security is not implemented yet"):
        load_server_config(COMBINED, {key: "x"})


def test_security_protocol_between_brokers_may_be_set_to_plaintext() -> None:
    load_server_config(COMBINED, {"security.inter.broker.protocol": "PLAINTEXT"})
    with pytest.raises(ConfigError, match=r"security.inter.broker.protocol: SSL is not served"):
        load_server_config(COMBINED, {"security.inter.broker.protocol": "SSL"})


def test_listeners_may_be_ipv6() -> None:
    assert parse_listener("inside://[::1]:9092") == ("INSIDE", "::1", 9092)


@pytest.mark.parametrize("entries", ["/c", "/a,/c", "*,/a"])
def test_only_directories_of_the_node_can_be_cordoned(entries: str) -> None:
    assert broker_config(load_server_config(COMBINED + "cordoned.log.dirs=/b"), "c").cordoned_log_dirs == (
        "/b",
    )
    with pytest.raises(ConfigError, match=r"cordoned\.log\.dirs"):
        load_server_config(COMBINED + f"cordoned.log.dirs={entries}")
