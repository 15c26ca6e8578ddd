"""Work for which a connection is held, so that no later request overtakes the one that is handled."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from pykraft.kafka_protocol.connection import Connection
from pykraft.kafka_protocol.primitives import ProtocolError

logger = logging.getLogger(__name__)


async def to_the_end(connection: Connection, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work, and release the connection; an error closes it."""
    try:
        await work()
    except ProtocolError as error:
        connection.close(f"malformed request: {error.message}")
    except AssertionError:
        raise
    except Exception:
        # As for requests that are handled at once: a bug costs only the connection of its request.
        logger.exception("Produce failed")
        connection.close("internal error")
    except BaseException:
        # Cancelled. Later requests of this connection must not be handled: they would overtake this one.
        connection.close("the broker is stopping")
        raise
    finally:
        connection.release()
