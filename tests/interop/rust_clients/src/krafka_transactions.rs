//! Transactions of krafka.

use std::time::Duration;

use krafka::consumer::{AutoOffsetReset, IsolationLevel};
use krafka::producer::{TopicPartitionOffset, TransactionalProducer};

use crate::krafka_client::{connect, to_write};
use crate::order::{Order, Record, Result, text};

async fn producer(order: &Order) -> Result<TransactionalProducer> {
    Ok(connect(&order.servers)
        .await?
        .producer()
        .build_transactional(&order.id)
        .await?)
}

/// One record with this value for each partition, all of them acknowledged.
async fn send(producer: &TransactionalProducer, order: &Order, value: &str) -> Result<()> {
    for partition in 0..order.partitions {
        let record = Record {
            partition,
            value: Some(value.to_owned()),
            ..Default::default()
        };
        let _ = producer.send(to_write(&order.topic, &record)).await?;
    }
    Ok(())
}

async fn end(producer: &TransactionalProducer, commits: bool) -> Result<()> {
    Ok(if commits {
        producer.commit().await?
    } else {
        producer.abort().await?
    })
}

/// One transaction after another; each writes its number to every partition.
pub async fn transact(order: &Order) -> Result<()> {
    let producer = producer(order).await?;
    for (number, commits) in order.ends.iter().enumerate() {
        producer.begin()?;
        send(&producer, order, &number.to_string()).await?;
        end(&producer, *commits).await?;
    }
    Ok(producer.close().await?)
}

/// What a producer is told that commits after another one has taken its id over.
pub async fn fence(order: Order) -> Result<String> {
    let old = producer(&order).await?;
    old.begin()?;
    send(&old, &order, "old").await?;
    transact(&order).await?;
    Ok(match old.commit().await {
        Ok(()) => "it committed".to_owned(),
        Err(error) => error.to_string(),
    })
}

/// Takes records from a topic to another one and commits their offsets in the same transaction.
pub async fn process(order: Order) -> Result<()> {
    let producer = producer(&order).await?;
    let consumer = connect(&order.servers)
        .await?
        .consumer(&order.group)
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .isolation_level(IsolationLevel::ReadCommitted)
        .enable_auto_commit(false)
        .build()
        .await?;
    consumer.subscribe([&order.topic]).await?;
    producer.begin()?;
    let mut offsets = vec![];
    while offsets.len() < order.count {
        for read in consumer.poll(Duration::from_millis(300)).await? {
            let record = Record {
                value: read.value.as_deref().map(text),
                ..Default::default()
            };
            let _ = producer.send(to_write(&order.sink, &record)).await?;
            offsets.push(TopicPartitionOffset::new(
                &order.topic,
                read.partition,
                read.offset + 1,
            ));
        }
    }
    let group = consumer
        .group_metadata()
        .await
        .ok_or("no longer a member")?;
    producer.send_offsets(&offsets, &group).await?;
    end(&producer, order.ends[0]).await?;
    producer.close().await?;
    Ok(consumer.close().await?)
}
