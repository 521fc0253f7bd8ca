"""`predict` on a bucket: the same rows and answers as on the files, from a server that speaks S3 (moto)."""

import urllib.request

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ternarybert.data.locations import open_location
from ternarybert.errors import DataError
from ternarybert.runtime.predict_file import predict_file
from tests.runtime.folders import save_student

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def bucket(monkeypatch):
    """An empty bucket, and a file system that reaches it as s3fs's users configure it: by the environment."""
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    # moto keeps its buckets in the process, longer than the server.
    urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
    s3fs.S3FileSystem.clear_instance_cache()
    filesystem = s3fs.S3FileSystem()
    filesystem.mkdir("mails")
    yield filesystem
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def test_partitions_of_a_bucket_are_answered_as_local_files(bucket, tmp_path):
    folder = save_student(tmp_path / "m", "ForSequenceClassification")
    for year in (2025, 2026):
        path = tmp_path / "local" / f"year={year}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"text": [f"a good film {i}" for i in range(40)], "id": range(40)}), path)
        bucket.put(str(path), f"mails/year={year}/part-0.parquet")
    answers = []
    for source in (tmp_path / "local", "s3://mails", "s3://mails/*/*.parquet"):
        output = tmp_path / "answers.parquet"
        result = predict_file(folder, source, output, text="text", force=True)
        assert result.rows == 80
        answers.append(pandas.read_parquet(output))
    assert list(answers[0].columns[:3]) == ["year", "text", "id"]
    assert answers[0].equals(answers[1]) and answers[0].equals(answers[2])
    assert set(answers[0]["year"]) == {"2025", "2026"}


def test_a_missing_object_and_bucket_are_one_line(bucket):
    for location in ("s3://mails/none.parquet", "s3://nobody/a.parquet"):
        with pytest.raises(DataError, match=location) as caught:
            list(open_location(location))
        assert "\n" not in str(caught.value)
