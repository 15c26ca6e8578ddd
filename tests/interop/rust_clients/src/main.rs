//! Kafka clients for Rust against a running cluster.
//!
//! `rust_clients CLIENT do ORDER` carries out one order and prints one line of JSON; it exits with 1 on any
//! error. `rust_clients krafka members` hosts group members; their orders and events are those of
//! member_program.py.

mod krafka_client;
mod krafka_group;
mod krafka_transactions;
mod members;
mod order;
mod rskafka_client;

use order::{Order, Result};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["krafka", "members"] => members::host().await,
        ["krafka", "do", order] => print(krafka(serde_json::from_str(order)?).await?),
        ["rskafka", "do", order] => print(rskafka(serde_json::from_str(order)?).await?),
        _ => Err("usage: rust_clients CLIENT do ORDER | rust_clients krafka members".into()),
    }
}

fn print(done: Value) -> Result<()> {
    println!("{done}");
    Ok(())
}

async fn krafka(order: Order) -> Result<Value> {
    Ok(match order.what.as_str() {
        "create" => json!(krafka_client::create(order).await?),
        "describe" => krafka_client::describe(order).await?,
        "delete" => json!(krafka_client::delete(order).await?),
        "offsets" => krafka_client::offsets(order).await?,
        "produce" => json!(krafka_client::produce(order).await?),
        "read" => json!(krafka_client::read(order).await?),
        "transact" => json!(krafka_transactions::transact(&order).await?),
        "fence" => json!(krafka_transactions::fence(order).await?),
        "process" => json!(krafka_transactions::process(order).await?),
        _ => return Err("no such order".into()),
    })
}

async fn rskafka(order: Order) -> Result<Value> {
    Ok(match order.what.as_str() {
        "create" => json!(rskafka_client::create(order).await?),
        "describe" => rskafka_client::describe(order).await?,
        "delete" => json!(rskafka_client::delete(order).await?),
        "offsets" => rskafka_client::offsets(order).await?,
        "produce" => json!(rskafka_client::produce(order).await?),
        "read" => json!(rskafka_client::read(order).await?),
        _ => return Err("this client has no such order".into()),
    })
}
