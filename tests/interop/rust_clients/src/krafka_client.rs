//! krafka without groups and transactions.

use std::time::Duration;

use krafka::admin::{NewTopic, OffsetSpec, TopicPartition};
use krafka::consumer::{AutoOffsetReset, ConsumerRecord, IsolationLevel};
use krafka::{Compression, Kafka};
use serde_json::{Value, json};

use crate::order::{Order, Record, Result, text};

pub async fn connect(servers: &str) -> Result<Kafka> {
    Ok(Kafka::builder(servers).connect().await?)
}

pub async fn create(order: Order) -> Result<()> {
    let admin = connect(&order.servers).await?.admin();
    let topic = NewTopic::new(&order.topic, order.partitions, order.replicas)?;
    for (_, created) in admin.create_topics([topic], Default::default()).await? {
        created?;
    }
    Ok(())
}

pub async fn delete(order: Order) -> Result<()> {
    let admin = connect(&order.servers).await?.admin();
    for (_, deleted) in admin
        .delete_topics([&order.topic], Default::default())
        .await?
    {
        deleted?;
    }
    Ok(())
}

pub async fn describe(order: Order) -> Result<Value> {
    let admin = connect(&order.servers).await?.admin();
    let mut described = admin
        .describe_topics([&order.topic], Default::default())
        .await?;
    let topic = described.remove(&order.topic).ok_or("no answer")??;
    let replicas: Vec<usize> = topic
        .partitions
        .iter()
        .map(|partition| partition.replicas.len())
        .collect();
    Ok(json!({"partitions": topic.partitions.len(), "replicas": replicas}))
}

pub async fn offsets(order: Order) -> Result<Value> {
    let admin = connect(&order.servers).await?.admin();
    let mut found = vec![];
    for spec in [
        OffsetSpec::Earliest,
        OffsetSpec::Latest,
        OffsetSpec::Timestamp(order.time_ms),
    ] {
        let partition = TopicPartition::new(&order.topic, 0);
        for (_, listed) in admin
            .list_offsets([(partition, spec)], Default::default())
            .await?
        {
            found.push(listed?.offset);
        }
    }
    Ok(json!({"earliest": found[0], "latest": found[1], "at_time": found[2]}))
}

pub async fn produce(order: Order) -> Result<Vec<i64>> {
    let compression = match order.codec.as_str() {
        "gzip" => Compression::Gzip,
        "lz4" => Compression::Lz4,
        "snappy" => Compression::Snappy,
        "zstd" => Compression::Zstd,
        _ => Compression::None,
    };
    let kafka = connect(&order.servers).await?;
    let producer = kafka
        .producer()
        .compression(compression)
        .idempotent(order.idempotent)
        .build()
        .await?;
    let mut sent = vec![];
    for record in &order.records {
        sent.push(producer.enqueue(to_write(&order.topic, record)).await?);
    }
    let mut at = vec![];
    for acknowledged in sent {
        at.push(acknowledged.await?.offset);
    }
    producer.close().await?;
    Ok(at)
}

pub fn to_write(topic: &str, record: &Record) -> krafka::Record {
    let mut written = krafka::Record::new(topic, vec![]).partition(record.partition);
    written.key = record.key.clone().map(Into::into);
    written.value = record.value.clone().map(Into::into);
    for (name, value) in &record.headers {
        written = written.header(name, value.clone());
    }
    written
}

pub async fn read(order: Order) -> Result<Vec<Record>> {
    let level = if order.committed {
        IsolationLevel::ReadCommitted
    } else {
        IsolationLevel::ReadUncommitted
    };
    let consumer = connect(&order.servers)
        .await?
        .consumer_without_group()
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .isolation_level(level)
        .build()
        .await?;
    consumer
        .assign(&order.topic, (0..order.partitions).collect())
        .await?;
    let mut found = vec![];
    while found.len() < order.count {
        found.extend(
            consumer
                .poll(Duration::from_millis(300))
                .await?
                .into_iter()
                .map(from_read),
        );
    }
    consumer.close().await?;
    Ok(found)
}

fn from_read(record: ConsumerRecord) -> Record {
    let header = |(name, value): &(String, Option<_>)| {
        (name.clone(), value.as_deref().map(text).unwrap_or_default())
    };
    Record {
        partition: record.partition,
        offset: record.offset,
        key: record.key.as_deref().map(text),
        value: record.value.as_deref().map(text),
        headers: record.headers.iter().map(header).collect(),
    }
}
