//! A group member of krafka.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use krafka::Kafka;
use krafka::consumer::{
    AutoOffsetReset, ConsumerRebalanceListener, GroupProtocol, OffsetAndMetadata, TopicPartition,
};
use serde_json::json;
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use crate::members::Member;
use crate::order::Result;

/// The partitions of a member, which is told only what changes.
struct Share {
    member: Member,
    owned: Mutex<Vec<i32>>,
}

impl Share {
    fn add(&self, partitions: &[TopicPartition]) {
        let mut owned = self.owned.lock().unwrap();
        owned.extend(partitions.iter().map(|added| added.partition));
        self.member.owns("assigned", owned.clone());
    }

    fn remove(&self, what: &str, partitions: &[TopicPartition]) {
        let mut owned = self.owned.lock().unwrap();
        owned.retain(|index| partitions.iter().all(|gone| gone.partition != *index));
        self.member.owns(what, owned.clone());
    }
}

impl ConsumerRebalanceListener for Share {
    async fn on_partitions_assigned(&self, partitions: &[TopicPartition]) {
        self.add(partitions);
    }

    async fn on_partitions_revoked(&self, partitions: &[TopicPartition]) {
        self.remove("revoked", partitions);
    }

    async fn on_partitions_lost(&self, partitions: &[TopicPartition]) {
        self.remove("lost", partitions);
    }
}

pub async fn join(member: &Member, mut stopped: Receiver<()>) -> Result<()> {
    let kafka = Kafka::builder(&member.servers)
        .client_id(&member.name)
        .connect()
        .await?;
    let share = Share {
        member: member.clone(),
        owned: Mutex::default(),
    };
    let mut builder = kafka
        .consumer(&member.group)
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .enable_auto_commit(false)
        .fetch_max_wait(Duration::from_millis(300))
        .rebalance_listener(Arc::new(share));
    builder = if member.protocol == "consumer" {
        builder.group_protocol(GroupProtocol::Consumer)
    } else {
        builder
            .session_timeout(Duration::from_millis(member.session_ms))
            .heartbeat_interval(Duration::from_millis(500))
    };
    let consumer = builder.build().await?;
    consumer.subscribe([&member.topic]).await?;
    while stopped.try_recv() == Err(TryRecvError::Empty) {
        let mut got = vec![];
        let mut ends = HashMap::new();
        for record in consumer.poll(Duration::from_millis(100)).await? {
            got.push((record.partition, record.offset));
            ends.insert(record.partition, record.offset + 1);
        }
        if got.is_empty() {
            continue;
        }
        member.say(json!({"got": got}));
        let offsets = ends.iter().map(|(partition, end)| {
            (
                TopicPartition::new(&member.topic, *partition),
                OffsetAndMetadata::new(*end),
            )
        });
        match consumer.commit_offsets(offsets.collect::<Vec<_>>()).await {
            Ok(()) => member.say(json!({"committed": Vec::from_iter(ends)})),
            Err(error) => member.say(json!({"note": format!("commit: {error}")})),
        }
    }
    Ok(consumer.close().await?)
}
