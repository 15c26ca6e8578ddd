"""The pages of the console, asked for as a browser does, over a real cluster."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from pykraft.kafka_client.results import GroupDescription
from pykraft.node.web.console.shown_node import PRODUCE
from pykraft.node.web.console.templating import UNKNOWN
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.node.web.console_data import (
    CLASSIC,
    FIRST_MS,
    HOSTILE,
    MODERN,
    ORDERS,
    ORDERS_WRITTEN,
    PAYMENTS,
    STRANGE,
    consumers_alike,
    fill,
    groups,
)
from tests.node.web.console_site import Site, StandIn, console

RECORDS = f"/console/topics/{ORDERS}/records"
STRANGE_RECORDS = f"/console/topics/{STRANGE}/records"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        fill(cluster.bootstrap_servers)
        yield cluster


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> StandIn:
    return StandIn(cluster.bootstrap_servers)


@pytest.fixture(scope="module")
def site(node: StandIn) -> Iterator[Site]:
    with console(node) as site:
        yield site


def test_overview_counts_what_there_is(site: Site) -> None:
    answer = site.get("/console")
    assert answer.status == 200
    assert "1 of 1 brokers active; the controller is node 1" in answer.words
    assert "0 offline partitions 0 under-replicated partitions" in answer.words
    assert site.get("/").location == "/console"


def test_topics_are_found_by_name_and_internal_ones_are_hidden(site: Site) -> None:
    every = site.get("/console/topics").words
    assert ORDERS in every and "__transaction_state" not in every
    assert f"{ORDERS} 3 1 {ORDERS_WRITTEN} in sync" in every
    found = site.get("/console/topics", search="ORD", internal=1).words
    assert ORDERS in found and PAYMENTS not in found and "__" not in found
    assert "__transaction_state" in site.get("/console/topics", internal=1).words
    assert "No topic has “nothing” in its name" in site.get("/console/topics", search="nothing").words


def test_topic_shows_its_partitions_and_its_configuration(site: Site) -> None:
    words = site.get(f"/console/topics/{ORDERS}").words
    assert f"0 1 epoch 0 1 1 {UNKNOWN} 0 134" in words
    assert "retention.ms 604800000 this topic" in words


def test_newest_records_come_first_and_pages_lead_to_all(site: Site) -> None:
    answer = site.get(RECORDS, partition=0, limit=100)
    assert answer.text.count("<summary>") == 102  # and those of two lists that are folded
    assert f'"order": {ORDERS_WRITTEN - 1},' in answer.words
    older = answer.text.partition('rel="prev" href="')[2].partition('"')[0].replace("&amp;", "&")
    assert "before=34" in older
    last = site.get(older)
    assert "offsets 0 up to 34" in last.words and 'rel="prev"' not in last.text
    assert "customer-0" in last.text and 'rel="next"' in last.text


def test_oldest_records_come_first_and_the_next_page_follows(site: Site) -> None:
    answer = site.get(RECORDS, partition=1, from_="oldest", limit=50)
    assert "offsets 0 up to 50, of 0 up to 133" in answer.words
    following = answer.text.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    assert "offsets 50 up to 100" in site.get(following).words


def test_records_of_all_partitions_are_in_the_order_of_their_times(site: Site) -> None:
    words = site.get(RECORDS, limit=4).words
    places = [words.index(f'"order": {ORDERS_WRITTEN - n},') for n in (1, 2, 3, 4)]
    assert places == sorted(places) and f'"order": {ORDERS_WRITTEN - 5},' not in words


def test_records_are_found_from_a_time_on(site: Site) -> None:
    at = datetime.fromtimestamp(FIRST_MS / 1000 + 300, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    for given in (at, f"{at}Z", str(FIRST_MS + 300_000)):
        words = site.get(RECORDS, from_="time", time=given, limit=2).words
        assert '"order": 300,' in words and '"order": 301,' in words and '"order": 302,' not in words
    assert "There are no records here" in site.get(RECORDS, from_="time", time="2100-01-01").words


def test_records_are_filtered_by_the_text_of_key_or_value(site: Site) -> None:
    words = site.get(RECORDS, partition=2, contains="customer-17", where="key").words
    assert words.count("▸") == 0 and words.count('"customer": "customer-17"') >= 2
    assert "customer-18" not in words
    nothing = site.get(RECORDS, partition=2, contains="A-3", where="key").words
    assert "Nothing that was looked at contains “A-3”" in nothing


def test_one_record_is_shown_whole(site: Site) -> None:
    answer = site.get(STRANGE_RECORDS, partition=0, from_="offset", offset=8, limit=1)
    assert (
        "<details open>" in answer.text
        and "x" * 65_000 in answer.text
        and "There is more of it" in answer.words
    )
    assert "x" * 3_000 not in site.get(STRANGE_RECORDS, partition=0).text


def test_compressed_records_come_with_their_batch_and_headers(site: Site) -> None:
    words = site.get(RECORDS, partition=0, from_="offset", offset=5, limit=1).words
    assert "zstd" in words and "trace 0000000f" in words and "source shop" in words


def test_markers_are_told_from_records_and_aborted_records_can_be_left_out(site: Site) -> None:
    path = f"/console/topics/{PAYMENTS}/records"
    every = site.get(path, partition=0).words
    assert every.count("transaction marker: commit") == 2 and every.count("transaction marker: abort") == 1
    assert "withdrawn" in every and "in a transaction" in every
    committed = site.get(path, partition=0, isolation="committed").words
    assert "paid again" in committed and "withdrawn" not in committed


@pytest.mark.parametrize(
    ("offset", "shown"),
    [
        (1, "Value null"),
        (2, "Value empty"),
        (3, "data of a schema registry do (magic byte 0), with schema 42"),
        (4, "000010 10 11 12"),
        (5, "As a big-endian integer: 12,345."),
        (6, "txt.\\u202egpj"),
        (7, '"emoji": "\\ud83d"'),
        (9, "000000 63 61 66 e9 caf."),
    ],
)
def test_every_kind_of_data_is_shown(site: Site, offset: int, shown: str) -> None:
    assert shown in site.get(STRANGE_RECORDS, partition=0, from_="offset", offset=offset, limit=1).words


def test_formats_are_chosen(site: Site) -> None:
    one = {"partition": 0, "from_": "offset", "offset": 5, "limit": 1}
    assert "000000 7b 22 6f 72" in site.get(RECORDS, **one, format="hex").words
    assert "Value text" in site.get(RECORDS, **one, format="text").words
    assert "This is not JSON" in site.get(STRANGE_RECORDS, **one, format="json").words


def test_whatever_strangers_wrote_is_only_shown(site: Site) -> None:
    answers = [
        site.get(STRANGE_RECORDS, partition=0),
        site.get(STRANGE_RECORDS, partition=0, contains=HOSTILE),
        site.get("/console/topics", search=HOSTILE),
        site.get("/console/groups", search=HOSTILE),
        site.get("/console/group", id=HOSTILE),
        site.get(f"/console/topics/{ORDERS}", page=HOSTILE[:20]),
        site.get(RECORDS, from_="time", time=HOSTILE),
        site.post(f"/console/topics/{ORDERS}/produce", {"partition": "no", "value": HOSTILE}),
    ]
    assert [one.status for one in answers] == [200, 200, 200, 200, 404, 400, 400, 400]
    for answer in answers:
        assert "<script>alert" not in answer.text and "<img src=x" not in answer.text
        assert (
            answer.text.count("<script") == 1 and "<style" not in answer.text and "style=" not in answer.text
        )
    assert "&lt;script&gt;alert(1)" in answers[0].text and "{{7*7}}" in answers[0].text


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/console/nowhere", 404, "no page at this address"),
        ("/console/static/nothing.js", 404, "no page at this address"),
        ("/console/topics/none", 404, "There is no topic none"),
        ("/console/topics/%C3%A4", 404, "No topic can have this name"),
        ("/console/topics?page=0", 400, "Page is a whole number from 1"),
        ("/console/topics?internal=2", 400, "Internal is one of 0, 1"),
        (f"/console/topics?search={'x' * 401}", 400, "longer than 400"),
        (f"{RECORDS}?partition=9", 404, "no partition 9"),
        (f"{RECORDS}?partition=-1", 400, "Partition is a whole number"),
        (f"{RECORDS}?partition=%D9%A3", 400, "Partition is a whole number"),
        (f"{RECORDS}?from=offset", 400, "give partition and offset"),
        (f"{RECORDS}?from=yesterday", 400, "From is one of newest, oldest"),
        (f"{RECORDS}?from=time&time=2030-13-01", 400, "a time such as"),
        (f"{RECORDS}?limit=201", 400, "Limit is a whole number from 1 to 200"),
        (f"{RECORDS}?offset=99999999999999999999", 400, "Offset is a whole number"),
        ("/console/group", 404, "names no group"),
        ("/console/group?id=none", 404, "There is no group none"),
        ("/console/brokers/7", 404, "There is no broker 7"),
        ("/console/brokers/one", 404, "No broker can have this id"),
    ],
)
def test_what_is_not_there_or_not_valid_is_told(site: Site, path: str, status: int, told: str) -> None:
    answer = site.get(path)
    assert answer.status == status and told in answer.words, answer.words


def test_an_offset_beyond_the_log_shows_its_end(site: Site) -> None:
    words = site.get(RECORDS, partition=0, from_="offset", offset=10_000).words
    assert "There are no records here" in words and "of 0 up to 134" in words


def test_groups_of_both_protocols_show_members_offsets_and_lag(cluster: Cluster, site: Site) -> None:
    with groups(cluster.bootstrap_servers):
        listed = site.get("/console/groups").words
        assert f"{CLASSIC} Stable classic 1 broker 1" in listed
        assert f"{MODERN} Stable consumer 1 broker 1" in listed
        for group_id, protocol in ((CLASSIC, "classic"), (MODERN, "consumer")):
            words = site.get("/console/group", id=group_id).words
            assert f"{protocol} protocol" in words and f"reader of {group_id}" in words
            assert f"{ORDERS} : 0, 1, 2" in words and f"{ORDERS} -2" in words
            assert "records behind" in words
        assert "group epoch, assignment epoch" in words
    assert "The group has no members" in site.get("/console/group", id=CLASSIC).words


def test_members_of_one_client_id_are_told_apart(cluster: Cluster, site: Site) -> None:
    with consumers_alike(cluster.bootstrap_servers, "twins", "same") as consumers, cluster.admin() as admin:

        def have_shared() -> bool:
            for consumer in consumers:
                consumer.poll(0)
            described = admin.describe_groups(["twins"])["twins"]
            members = described.members if isinstance(described, GroupDescription) else ()
            return sorted(len(one.assignment.get(ORDERS, ())) for one in members) == [1, 2]

        wait_until("both have partitions", have_shared, PATIENCE_S)
        words = site.get("/console/group", id="twins").words
        for member in admin.describe_group("twins").members:
            shown = f"same …{member.member_id[-8:]}, {member.client_host}"
            assert words.count(shown) == len(member.assignment[ORDERS]), words


def test_quorum_and_brokers_are_described(site: Site) -> None:
    quorum = site.get("/console/quorum").words
    assert "1 this node leader" in quorum and "CONTROLLER://127.0.0.1:" in quorum
    assert "metadata.version" in quorum and "As node 1 sees it none" in quorum
    assert "active active controller" in site.get("/console/brokers").words
    broker = site.get("/console/brokers/1").words
    assert "node-1 works" in broker and "process.roles broker,controller" in broker


def test_record_is_written_and_shown(site: Site, cluster: Cluster) -> None:
    topic = cluster.create_topic("written", partitions=2)
    path = f"/console/topics/{topic}/produce"
    assert "0 to 1; empty: by the key" in site.get(path).words
    form = {"partition": "1", "key": "k", "value": "one\r\ntwo", "headers": "a: b\n\nc:"}
    answer = site.post(path, form)
    assert answer.status == 303
    shown = site.get(answer.location)
    assert "The record was written" in shown.words and "partition 1, offset 0" in shown.words.lower()
    site.post(path, {"partition": "0", "value_kind": "null", "key": "00ff", "key_kind": "hex"})
    (first, second) = cluster.read(topic)
    assert (first.key, first.value, first.headers) == (b"\x00\xff", None, ())
    assert (second.key, second.value, second.headers) == (b"k", b"one\ntwo", (("a", b"b"), ("c", b"")))


@pytest.mark.parametrize(
    ("form", "status", "told"),
    [
        ({"value": "zz", "value_kind": "hex"}, 400, "Value is not hex"),
        ({"value": "x", "value_kind": "null"}, 400, "Value must be empty to be null"),
        ({"value": "x", "headers": "no colon"}, 400, "Line 1 of headers is not NAME: VALUE"),
        ({"value": "x", "partition": "5"}, 404, "There is no partition 5"),
        ({"value": "x" * 1_050_000}, 400, "Value is longer than"),
        ({"value": "x", "value_kind": "avro"}, 400, "Value_kind is one of"),
    ],
)
def test_record_that_is_not_valid_is_refused_and_the_form_stays(
    site: Site, form: dict[str, str], status: int, told: str
) -> None:
    answer = site.post(f"/console/topics/{ORDERS}/produce", form)
    assert answer.status == status and told in answer.words and "Write the record" in answer.words


def test_only_forms_of_the_page_are_read(site: Site, node: StandIn) -> None:
    path = f"/console/topics/{ORDERS}/produce"
    assert site.post(path, {"value": "x"}, "application/json").status == 415
    assert site.post(path, {f"field{n}": "" for n in range(30)}).status == 400
    assert site.post(path, {"value": "x" * (3 << 20)}).status == 413
    assert site.post("/console/topics/__transaction_state/produce", {"value": "x"}).status == 400
    node.mode = "read-only"
    try:
        assert site.get(path).status == 403 and site.post(path, {"value": "x"}).status == 403
        assert "Produce a record" not in site.get(f"/console/topics/{ORDERS}").words
    finally:
        node.mode = PRODUCE


def test_node_that_is_not_ready_says_why(site: Site, node: StandIn) -> None:
    node.reason = "the broker is opening its logs"
    try:
        assert "not ready: the broker is opening its logs" in site.get("/console/topics").words
        servers, node.bootstrap_servers = node.bootstrap_servers, ""
        answer = site.get("/console/topics")
        assert answer.status == 503 and "not ready: the broker is opening its logs" in answer.words
        quorum = site.get("/console/quorum")
        assert quorum.status == 200 and "As node 1 sees it none" in quorum.words
        node.bootstrap_servers = servers
    finally:
        node.reason = None


def test_controller_shows_the_quorum_only(cluster: Cluster) -> None:
    with console(StandIn(cluster.bootstrap_controllers, is_broker=False)) as site:
        assert site.get("/console").location == "/console/quorum"
        answer = site.get("/console/quorum")
        assert "1 this node leader" in answer.words and "metadata.version" in answer.words
        assert "Topics" not in answer.words and site.get("/console/topics").status == 404
