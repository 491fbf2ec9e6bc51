//! A full life against a rack through Oxide's own SDK.
//!
//! The rack's address is in `OXIDE_HOST` and its administrator's token in `OXIDE_TOKEN`, as for every program that uses
//! the SDK; `SDK_VIEWER_TOKEN` and `SDK_SMALL_TOKEN` are those of a user who may only look and of one in a silo without
//! room. Every step is told on a line that begins with `ok` or `FAILED`; the last line says that the program has come
//! to its end.

mod access;
mod attachments;
mod console;
mod fixtures;
mod instances;
mod network;
mod paging;
mod refusals;
mod storage;
mod story;

use std::process::ExitCode;

use oxide::{Client, ClientConfig, ClientInfo};

use story::{Outcome, Story};

/// Clients of the same rack, each with another user's token.
pub struct Clients {
    /// An administrator of the silo.
    pub admin: Client,
    /// One who may look at everything in the silo and change nothing.
    pub viewer: Client,
    /// An administrator of another silo, in which there is room for nothing.
    pub small: Client,
    /// One whom the rack does not know.
    pub unknown: Client,
}

fn client(token: Option<String>) -> Outcome<Client> {
    let host = std::env::var("OXIDE_HOST").map_err(|_| "OXIDE_HOST is not set")?;
    let client = match token {
        // As a program does that knows nothing of tests.
        None => Client::new_authenticated(),
        Some(token) => Client::new_authenticated_config(&ClientConfig::default().with_host_and_token(host, token)),
    };
    client.map_err(|error| error.to_string())
}

fn token(variable: &str) -> Outcome<Option<String>> {
    std::env::var(variable)
        .map(Some)
        .map_err(|_| format!("{variable} is not set"))
}

fn clients() -> Outcome<Clients> {
    Ok(Clients {
        admin: client(None)?,
        viewer: client(token("SDK_VIEWER_TOKEN")?)?,
        small: client(token("SDK_SMALL_TOKEN")?)?,
        unknown: client(Some("oxide-token-0000000000000000".to_owned()))?,
    })
}

/// One project from its beginning to its end.
async fn live(clients: &Clients) -> Outcome<()> {
    let client = &clients.admin;
    access::tell(&mut Story::new("access"), client).await?;
    let image = storage::tell(&mut Story::new("storage"), client).await?;
    network::tell(&mut Story::new("network"), client).await?;
    instances::tell(&mut Story::new("instances"), client, image).await?;
    console::tell(&mut Story::new("console"), client).await?;
    paging::tell(&mut Story::new("paging"), client).await?;
    refusals::tell(&mut Story::new("refusals"), clients).await?;
    access::end(&mut Story::new("end"), client, image).await?;
    refusals::end(&mut Story::new("tokens"), clients).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    println!("Speaking api-version {}", <Client as ClientInfo<()>>::api_version());
    let outcome = match clients() {
        Ok(clients) => live(&clients).await,
        Err(why) => {
            println!("FAILED  preparation: {why}");
            Err(why)
        }
    };
    println!("The end");
    if outcome.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
