"""The flights job: figures from the file, from a topic, and their comparison."""

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import mean_departure_delay as job
import nycflights
import pytest

from tests.mock_cluster import MockCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [
    "year,month,dep_delay,carrier,tailnum",
    "2013,1,2,UA,N1",
    "2013,1,-4,UA,",
    "2013,1,NA,UA,N3",
    "2013,1,7,DL,NA",
    "2013,1,NA,HA,N5",
]


@pytest.fixture
def csv_zip(tmp_path: Path) -> Path:
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", "\n".join(ROWS) + "\n")
    return path


def test_figures_are_computed_from_the_file(csv_zip: Path) -> None:
    found = job.delays_from_file(csv_zip)
    assert found == {"UA": job.Delays(3, 2, -2), "DL": job.Delays(1, 1, 7), "HA": job.Delays(1, 0, 0)}
    assert [found[carrier].mean_minutes for carrier in ("UA", "DL", "HA")] == [-1.0, 7.0, None]


def test_disagreement_shows_in_the_result_and_the_table() -> None:
    same, other = job.Delays(3, 2, -2), job.Delays(2, 2, -2)
    table = (
        job.CarrierRow("UA", same, same),
        job.CarrierRow("DL", same, other),
        job.CarrierRow("HA", None, other),
    )
    result = job.Result(6, 2.0, 1.0, table)
    assert not result.agree
    assert [line.split()[-1] for line in job.format_table(result).splitlines()] == [
        "agrees",
        "yes",
        "NO",
        "NO",
    ]
    assert job.Result(6, 2.0, 1.0, table[:1]).agree
    assert (result.rows_per_s, result.warm_rows_per_s) == (3.0, 6.0)


def test_rows_of_the_file_become_typed_records(csv_zip: Path) -> None:
    rows = list(nycflights.iter_flights(csv_zip))
    assert rows[1] == {"year": 2013, "month": 1, "dep_delay": -4, "carrier": "UA", "tailnum": None}
    key, value = nycflights.encode_flight(rows[2])
    assert (key, value) == (b"UA", b'{"year":2013,"month":1,"dep_delay":null,"carrier":"UA","tailnum":"N3"}')


def test_data_set_already_in_the_directory_is_used(csv_zip: Path) -> None:
    assert nycflights.find_flights(csv_zip.parent) == csv_zip


@pytest.mark.spark
def test_topic_and_file_agree(
    spark_session: "SparkSession", mock_cluster: MockCluster, csv_zip: Path
) -> None:
    for key, value in map(nycflights.encode_flight, nycflights.iter_flights(csv_zip)):
        mock_cluster.producer.produce("delays", value, key=key)
    assert mock_cluster.producer.flush(20) == 0
    result = job.run(mock_cluster.bootstrap_servers, "delays", csv_zip, spark_session)
    assert result.agree and result.rows == 5
    mock_cluster.producer.produce("delays", value, key=key)
    assert mock_cluster.producer.flush(20) == 0
    assert not job.run(mock_cluster.bootstrap_servers, "delays", csv_zip, spark_session).agree
