//! rskafka: partitions are written and read one by one; it has no groups and no transactions.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use serde_json::{Value, json};

use crate::order::{Order, Record, Result, text};

const TIMEOUT_MS: i32 = 60_000;

async fn connect(order: &Order) -> Result<Client> {
    let servers = order.servers.split(',').map(str::to_owned).collect();
    Ok(ClientBuilder::new(servers).build().await?)
}

async fn partition(order: &Order, index: i32) -> Result<Arc<PartitionClient>> {
    let client = connect(order).await?;
    let partition = client
        .partition_client(&order.topic, index, UnknownTopicHandling::Retry)
        .await?;
    Ok(Arc::new(partition))
}

pub async fn create(order: Order) -> Result<()> {
    let controller = connect(&order).await?.controller_client()?;
    Ok(controller
        .create_topic(&order.topic, order.partitions, order.replicas, TIMEOUT_MS)
        .await?)
}

pub async fn delete(order: Order) -> Result<()> {
    let controller = connect(&order).await?.controller_client()?;
    Ok(controller.delete_topic(&order.topic, TIMEOUT_MS).await?)
}

/// It lists topics with their partitions, and says nothing of replicas.
pub async fn describe(order: Order) -> Result<Value> {
    let topics = connect(&order).await?.list_topics().await?;
    let found = topics
        .iter()
        .find(|topic| topic.name == order.topic)
        .ok_or("UNKNOWN_TOPIC_OR_PARTITION")?;
    Ok(json!({"partitions": found.partitions.len(), "replicas": null}))
}

pub async fn offsets(order: Order) -> Result<Value> {
    let partition = partition(&order, 0).await?;
    let time = DateTime::<Utc>::from_timestamp_millis(order.time_ms).ok_or("no such time")?;
    Ok(json!({
        "earliest": partition.get_offset(OffsetAt::Earliest).await?,
        "latest": partition.get_offset(OffsetAt::Latest).await?,
        "at_time": partition.get_offset(OffsetAt::Timestamp(time)).await?,
    }))
}

pub async fn produce(order: Order) -> Result<Vec<i64>> {
    let compression = match order.codec.as_str() {
        "gzip" => Compression::Gzip,
        "lz4" => Compression::Lz4,
        "snappy" => Compression::Snappy,
        "zstd" => Compression::Zstd,
        _ => Compression::NoCompression,
    };
    let mut at = vec![-1; order.records.len()];
    for index in 0..order.partitions {
        let there = order
            .records
            .iter()
            .enumerate()
            .filter(|(_, record)| record.partition == index);
        let (places, records): (Vec<usize>, Vec<_>) = there
            .map(|(place, record)| (place, to_write(record)))
            .unzip();
        let offsets = partition(&order, index)
            .await?
            .produce(records, compression)
            .await?;
        for (place, offset) in places.into_iter().zip(offsets) {
            at[place] = offset;
        }
    }
    Ok(at)
}

fn to_write(record: &Record) -> rskafka::record::Record {
    let bytes = |text: &String| text.clone().into_bytes();
    let headers = record
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), bytes(value)));
    rskafka::record::Record {
        key: record.key.as_ref().map(bytes),
        value: record.value.as_ref().map(bytes),
        headers: BTreeMap::from_iter(headers),
        timestamp: Utc::now(),
    }
}

pub async fn read(order: Order) -> Result<Vec<Record>> {
    let mut found = vec![];
    for index in 0..order.partitions {
        let partition = partition(&order, index).await?;
        let end = partition.get_offset(OffsetAt::Latest).await?;
        let mut next = 0;
        while next < end {
            let (records, _) = partition.fetch_records(next, 1..1_000_000, 300).await?;
            next = records.last().map_or(next, |record| record.offset + 1);
            found.extend(records.into_iter().map(|read| {
                Record {
                    partition: index,
                    offset: read.offset,
                    key: read.record.key.as_deref().map(text),
                    value: read.record.value.as_deref().map(text),
                    headers: read
                        .record
                        .headers
                        .iter()
                        .map(|(k, v)| (k.clone(), text(v)))
                        .collect(),
                }
            }));
        }
    }
    Ok(found)
}
