"""CRC-32C is that of the package ``crc32c``, loaded without the rest of it."""

import subprocess
import sys

import crc32c as package

from pykraft.kafka_protocol import crc


def test_extension_computes_what_the_package_does() -> None:
    assert crc.crc32c(b"123456789") == 0xE3069283
    data = bytes(range(256)) * 9
    assert crc.crc32c(data[100:], crc.crc32c(data[:100])) == package.crc32c(data)


def test_package_itself_is_not_imported() -> None:
    code = "import sys, pykraft.kafka_protocol.crc; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"crc32c", "importlib.metadata", "email"} & set(imported.split())
