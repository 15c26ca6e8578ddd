"""Changes of the voters, and waiting for their effects."""

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.effects import Reply
from pykraft.quorum.core.messages import VoterChangeResponse
from pykraft.quorum.core.voters import Voter, VoterSet
from pykraft.runtime.address import Address
from tests.quorum.bench import CoreBench

OTHER_DISK = Uuid(b"other disk......")


def address(node_id: int) -> Address:
    return Address("test", node_id)


def voter(b: CoreBench, node_id: int) -> Voter:
    return Voter(b.keys[node_id], address(node_id))


def catch_up(b: CoreBench, *node_ids: int) -> None:
    """These replicas fetch from the end of the leader's log, repeatedly, as followers do."""
    effects = []
    for node_id in node_ids:
        b.fetch(node_id, b.state.log.end_offset, b.state.log.last_epoch)
        effects += b.effects
    b.effects = effects


def answers(b: CoreBench) -> list[ErrorCode]:
    """The answers to changes among the last effects, as (error, message)."""
    return [
        e.response.error for e in b.effects if type(e) is Reply and type(e.response) is VoterChangeResponse
    ]


def voters_of(count: int) -> VoterSet:
    return CoreBench(voters=count).voters
