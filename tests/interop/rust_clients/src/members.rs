//! Group members that come and go by order.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::oneshot;

use crate::krafka_group;
use crate::order::Result;

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct Member {
    #[serde(rename = "start")]
    pub name: String,
    pub stop: String,
    pub group: String,
    pub topic: String,
    pub protocol: String,
    pub servers: String,
    pub session_ms: u64,
}

impl Member {
    pub fn say(&self, mut event: Value) {
        event["member"] = json!(self.name);
        println!("{event}");
    }

    pub fn owns(&self, what: &str, mut partitions: Vec<i32>) {
        partitions.sort_unstable();
        self.say(json!({"what": what, "owned": partitions}));
    }
}

/// Runs each member by itself until stdin ends.
pub async fn host() -> Result<()> {
    let mut stopping = HashMap::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let member: Member = serde_json::from_str(&line)?;
        if !member.stop.is_empty() {
            stopping.remove(&member.stop);
            continue;
        }
        let (stop, stopped) = oneshot::channel::<()>();
        stopping.insert(member.name.clone(), stop);
        tokio::spawn(async move {
            match krafka_group::join(&member, stopped).await {
                Ok(()) => member.say(json!({"stopped": true})),
                Err(error) => member.say(json!({"error": error.to_string()})),
            }
        });
    }
    Ok(())
}
