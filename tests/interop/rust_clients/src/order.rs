//! What the tests order, and the records that they write and expect.

use serde::{Deserialize, Serialize};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Which of the fields an order has depends on what it wants done.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Order {
    #[serde(rename = "do")]
    pub what: String,
    pub servers: String,
    pub topic: String,
    pub partitions: i32,
    pub replicas: i16,
    pub codec: String,
    pub idempotent: bool,
    pub records: Vec<Record>,
    pub count: usize,
    /// Read no records of aborted or open transactions.
    pub committed: bool,
    pub time_ms: i64,
    /// Of a transactional producer.
    pub id: String,
    /// For each transaction whether it is committed.
    pub ends: Vec<bool>,
    pub group: String,
    pub sink: String,
}

/// A record as the tests write it: keys and values may be missing.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Record {
    pub partition: i32,
    pub offset: i64,
    pub key: Option<String>,
    pub value: Option<String>,
    pub headers: Vec<(String, String)>,
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
