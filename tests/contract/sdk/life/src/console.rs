//! The serial console of a running instance, in pieces and as a stream.

use oxide::{Client, prelude::*, types};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

use crate::fixtures::{PROJECT, bare_instance};
use crate::story::{Outcome, Story};

// The first byte of a whole binary message, and a close frame whose mask is zero.
const BINARY: u8 = 0x82;
const CLOSE: [u8; 6] = [0x88, 0x80, 0, 0, 0, 0];

pub async fn tell(story: &mut Story, client: &Client) -> Outcome<()> {
    let instance = story
        .call(
            "instance_create",
            client
                .instance_create()
                .project(PROJECT)
                .body(bare_instance("talker").start(true))
                .send(),
        )
        .await?;
    wait_for(story, client, instance.id, types::InstanceState::Running).await?;
    let all = story
        .call(
            "instance_serial_console",
            client
                .instance_serial_console()
                .instance(instance.id)
                .from_start(0_u64)
                .send(),
        )
        .await?;
    story.check(
        "the offset is behind what was read",
        all.last_byte_offset == all.data.len() as u64 && !all.data.is_empty(),
        || format!("{} of {}", all.last_byte_offset, all.data.len()),
    )?;
    let last = story
        .call(
            "instance_serial_console, the last bytes",
            client
                .instance_serial_console()
                .instance(instance.id)
                .most_recent(10_u64)
                .max_bytes(4_u64)
                .send(),
        )
        .await?;
    story.check(
        "they are the last bytes",
        last.data == all.data[all.data.len() - 10..all.data.len() - 6],
        || format!("{last:?}"),
    )?;
    let connection = story
        .call(
            "instance_serial_console_stream",
            client
                .instance_serial_console_stream()
                .instance(instance.id)
                .most_recent(20_u64)
                .send(),
        )
        .await?;
    let streamed = first_message(connection).await.map_err(|error| error.to_string());
    let streamed = story.tell("the stream brings a message", streamed)?;
    story.check(
        "it is the end of what was read",
        all.data.ends_with(&streamed) && streamed.len() == 20,
        || format!("{streamed:?}"),
    )?;
    story
        .call("instance_stop", client.instance_stop().instance(instance.id).send())
        .await?;
    wait_for(story, client, instance.id, types::InstanceState::Stopped).await?;
    story
        .call("instance_delete", client.instance_delete().instance(instance.id).send())
        .await
}

/// Wait until an instance is seen in a state.
pub async fn wait_for(story: &mut Story, client: &Client, instance: Uuid, state: types::InstanceState) -> Outcome<()> {
    story
        .wait(
            &format!("the instance is {state}"),
            || client.instance_view().instance(instance).send(),
            |seen: &types::Instance| seen.run_state == state,
        )
        .await
        .map(drop)
}

/// The content of the first message of a WebSocket, after which the connection is closed.
async fn first_message(mut connection: impl AsyncReadExt + AsyncWriteExt + Unpin) -> Result<Vec<u8>, std::io::Error> {
    let kind = connection.read_u8().await?;
    let length = match connection.read_u8().await? {
        126 => usize::from(connection.read_u16().await?),
        short => usize::from(short),
    };
    let mut content = vec![0; length];
    connection.read_exact(&mut content).await?;
    if kind != BINARY {
        return Err(std::io::Error::other(format!("frame of kind {kind:#x}: {content:?}")));
    }
    connection.write_all(&CLOSE).await?;
    Ok(content)
}
