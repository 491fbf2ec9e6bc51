//! Who one is, one's keys, and the project in which the other stories play, from its making to its end.

use oxide::{Client, prelude::*, types};
use uuid::Uuid;

use crate::fixtures::{PROJECT, name};
use crate::story::{Outcome, Story};

pub const SSH_KEY: &str = "laptop";

pub async fn tell(story: &mut Story, client: &Client) -> Outcome<()> {
    story.call("ping", client.ping().send()).await?;
    let me = story
        .call("current_user_view", client.current_user_view().send())
        .await?;
    story.check("the administrator is one", me.silo_admin, || format!("{me:?}"))?;

    let key = story
        .call(
            "current_user_ssh_key_create",
            client
                .current_user_ssh_key_create()
                .body_map(|body| {
                    body.name(SSH_KEY)
                        .description("")
                        .public_key("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExampleExampleExampleExample")
                })
                .send(),
        )
        .await?;
    let keys = story
        .all("current_user_ssh_key_list", client.current_user_ssh_key_list().stream())
        .await?;
    story.check("the key is listed", keys.iter().any(|other| other.id == key.id), || {
        format!("{keys:?}")
    })?;
    story
        .call(
            "current_user_ssh_key_view",
            client.current_user_ssh_key_view().ssh_key(key.id).send(),
        )
        .await?;

    let project = story
        .call(
            "project_create",
            client
                .project_create()
                .body_map(|body| body.name("draft").description("a life"))
                .send(),
        )
        .await?;
    let renamed = story
        .call(
            "project_update",
            client
                .project_update()
                .project(project.id)
                .body_map(|body| body.name(name(PROJECT)))
                .send(),
        )
        .await?;
    let seen = story
        .call("project_view", client.project_view().project(PROJECT).send())
        .await?;
    story.check("it is the same project", seen.id == renamed.id, || format!("{seen:?}"))?;
    let projects = story.all("project_list", client.project_list().stream()).await?;
    story.check(
        "it is listed",
        projects.iter().any(|other| other.id == project.id),
        || format!("{projects:?}"),
    )
}

/// Take everything away that is left, in the order in which the API allows it.
pub async fn end(story: &mut Story, client: &Client, image: Uuid) -> Outcome<()> {
    story
        .call("image_delete", client.image_delete().image(image).send())
        .await?;
    story
        .call(
            "snapshot_delete",
            client.snapshot_delete().snapshot("imported").project(PROJECT).send(),
        )
        .await?;
    let disks = story
        .all("disk_list", client.disk_list().project(PROJECT).stream())
        .await?;
    for disk in disks {
        story
            .call(
                &format!("disk_delete {}", *disk.name),
                client.disk_delete().disk(disk.id).send(),
            )
            .await?;
    }
    story
        .call(
            "vpc_subnet_delete",
            client
                .vpc_subnet_delete()
                .subnet("default")
                .vpc("default")
                .project(PROJECT)
                .send(),
        )
        .await?;
    story
        .call("vpc_delete", client.vpc_delete().vpc("default").project(PROJECT).send())
        .await?;
    story
        .call("project_delete", client.project_delete().project(PROJECT).send())
        .await?;
    story
        .call(
            "current_user_ssh_key_delete",
            client.current_user_ssh_key_delete().ssh_key(SSH_KEY).send(),
        )
        .await?;
    let left: types::Utilization = story.call("utilization_view", client.utilization_view().send()).await?;
    let provisioned = &left.provisioned;
    let is_empty = provisioned.cpus == 0 && *provisioned.memory == 0 && *provisioned.storage == 0;
    story.check("nothing is left that counts", is_empty, || format!("{left:?}"))
}
