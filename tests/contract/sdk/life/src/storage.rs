//! An image from the bytes of a file, and disks made from it.

use oxide::{Client, prelude::*, types};
use uuid::Uuid;

use crate::fixtures::{GIB, PROJECT, blank, block_size};
use crate::story::{Outcome, Story};

// 1536 zero bytes, which are three blocks, in base64.
const BLOCKS: usize = 2048;

pub async fn tell(story: &mut Story, client: &Client) -> Outcome<Uuid> {
    import(story, client).await?;
    let image = make_image(story, client).await?;
    disks(story, client, image).await?;
    Ok(image)
}

/// A disk is filled with blocks and becomes a snapshot.
async fn import(story: &mut Story, client: &Client) -> Outcome<()> {
    let source = types::DiskSource::ImportingBlocks {
        block_size: block_size(512),
    };
    let disk = story
        .call(
            "disk_create for an import",
            client
                .disk_create()
                .project(PROJECT)
                .body_map(|body| {
                    body.name("upload")
                        .description("")
                        .size(2 * GIB)
                        .disk_backend(types::DiskBackend::Distributed(source))
                })
                .send(),
        )
        .await?;
    story
        .wait(
            "it is ready to import",
            || client.disk_view().disk(disk.id).send(),
            |disk: &types::Disk| matches!(disk.state, types::DiskState::ImportReady),
        )
        .await?;
    story
        .call(
            "disk_bulk_write_import_start",
            client.disk_bulk_write_import_start().disk(disk.id).send(),
        )
        .await?;
    for piece in 0..3_u64 {
        story
            .call(
                "disk_bulk_write_import",
                client
                    .disk_bulk_write_import()
                    .disk(disk.id)
                    .body_map(|body| body.offset(piece * 1536).base64_encoded_data("A".repeat(BLOCKS)))
                    .send(),
            )
            .await?;
    }
    story
        .call(
            "disk_bulk_write_import_stop",
            client.disk_bulk_write_import_stop().disk(disk.id).send(),
        )
        .await?;
    story
        .call(
            "disk_finalize_import",
            client
                .disk_finalize_import()
                .disk("upload")
                .project(PROJECT)
                .body_map(|body| body.snapshot_name(crate::fixtures::name("imported")))
                .send(),
        )
        .await?;
    let disk = story.call("disk_view", client.disk_view().disk(disk.id).send()).await?;
    story.check(
        "it is detached",
        matches!(disk.state, types::DiskState::Detached),
        || format!("{disk:?}"),
    )
}

/// An image is made from the snapshot, given to the silo and taken back.
async fn make_image(story: &mut Story, client: &Client) -> Outcome<Uuid> {
    let snapshot = story
        .call(
            "snapshot_view",
            client.snapshot_view().snapshot("imported").project(PROJECT).send(),
        )
        .await?;
    story.check("it is ready", snapshot.state == types::SnapshotState::Ready, || {
        format!("{snapshot:?}")
    })?;
    let image = story
        .call(
            "image_create",
            client
                .image_create()
                .project(PROJECT)
                .body_map(|body| {
                    body.name("node")
                        .description("")
                        .os("debian")
                        .version("13")
                        .source(types::ImageSource::Snapshot(snapshot.id))
                })
                .send(),
        )
        .await?;
    story
        .call("image_promote", client.image_promote().image(image.id).send())
        .await?;
    let listed = story.all("image_list", client.image_list().stream()).await?;
    story.check(
        "it is the silo's",
        listed
            .iter()
            .any(|other| other.id == image.id && other.project_id.is_none()),
        || format!("{listed:?}"),
    )?;
    story
        .call(
            "image_demote",
            client.image_demote().image("node").project(PROJECT).send(),
        )
        .await?;
    let seen = story
        .call("image_view", client.image_view().image("node").project(PROJECT).send())
        .await?;
    story.check("it is the same image", seen.id == image.id, || format!("{seen:?}"))?;
    Ok(image.id)
}

/// A blank disk, its snapshot, a local disk, and a disk that cannot be written.
async fn disks(story: &mut Story, client: &Client, image: Uuid) -> Outcome<()> {
    let backends = [
        ("data", 3 * GIB, blank()),
        ("local", 4 * GIB, types::DiskBackend::Local),
        (
            "fixed",
            2 * GIB,
            types::DiskBackend::Distributed(types::DiskSource::Image {
                image_id: image,
                read_only: true,
            }),
        ),
    ];
    for (name, size, backend) in backends {
        let disk = story
            .call(
                &format!("disk_create {name}"),
                client
                    .disk_create()
                    .project(PROJECT)
                    .body_map(|body| body.name(name).description("").size(size).disk_backend(backend))
                    .send(),
            )
            .await?;
        story
            .wait(
                "it is detached",
                || client.disk_view().disk(disk.id).send(),
                |disk: &types::Disk| matches!(disk.state, types::DiskState::Detached),
            )
            .await?;
    }
    let snapshot = story
        .call(
            "snapshot_create",
            client
                .snapshot_create()
                .project(PROJECT)
                .body_map(|body| body.name("of-data").description("").disk(crate::fixtures::name("data")))
                .send(),
        )
        .await?;
    let listed = story
        .all("snapshot_list", client.snapshot_list().project(PROJECT).stream())
        .await?;
    story.check("both snapshots are listed", listed.len() == 2, || format!("{listed:?}"))?;
    story
        .call("snapshot_delete", client.snapshot_delete().snapshot(snapshot.id).send())
        .await
}
