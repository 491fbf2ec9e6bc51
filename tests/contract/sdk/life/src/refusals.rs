//! One refusal of every class, as the SDK hands it on.

use oxide::{Client, prelude::*, types};

use crate::Clients;
use crate::console::wait_for;
use crate::fixtures::{GIB, PROJECT, any_ipv4, bare_instance, blank};
use crate::story::{Outcome, Refusal, Story};

fn refusal(status: u16, code: &'static str, says: &'static str) -> Refusal {
    Refusal {
        status,
        code: Some(code),
        says,
    }
}

pub async fn tell(story: &mut Story, clients: &Clients) -> Outcome<()> {
    credentials(story, clients).await?;
    bad_requests(story, &clients.admin).await?;
    states(story, &clients.admin).await?;
    no_room(story, clients).await
}

/// A user's token, once it has been deleted, is as unknown as any; the last that its bearer asks for.
pub async fn end(story: &mut Story, clients: &Clients) -> Outcome<()> {
    let viewer = &clients.viewer;
    let tokens = story
        .all(
            "current_user_access_token_list",
            viewer.current_user_access_token_list().stream(),
        )
        .await?;
    story.check("the viewer's is listed alone", tokens.len() == 1, || {
        format!("{} tokens", tokens.len())
    })?;
    for token in tokens {
        story
            .call(
                "current_user_access_token_delete",
                viewer.current_user_access_token_delete().token_id(token.id).send(),
            )
            .await?;
    }
    story
        .refused(
            "401 for a deleted token",
            viewer.project_list().send(),
            refusal(401, "Unauthorized", "credentials missing or invalid"),
        )
        .await
}

/// 401, 403, and 404 for what is not there and for what one may not see.
async fn credentials(story: &mut Story, clients: &Clients) -> Outcome<()> {
    story
        .refused(
            "401 for unknown credentials",
            clients.unknown.project_list().send(),
            refusal(401, "Unauthorized", "credentials missing or invalid"),
        )
        .await?;
    story
        .call(
            "a viewer may look",
            clients.viewer.project_view().project(PROJECT).send(),
        )
        .await?;
    story
        .refused(
            "403 for a change by a viewer",
            clients
                .viewer
                .disk_create()
                .project(PROJECT)
                .body_map(|body| body.name("mine").description("").size(GIB).disk_backend(blank()))
                .send(),
            refusal(403, "Forbidden", "Forbidden"),
        )
        .await?;
    story
        .refused(
            "404 for a project of another silo",
            clients.small.project_view().project(PROJECT).send(),
            refusal(404, "ObjectNotFound", r#"not found: project with name "sdk""#),
        )
        .await?;
    story
        .refused(
            "404 for an instance that is not there",
            clients.admin.instance_view().instance("nobody").project(PROJECT).send(),
            refusal(404, "ObjectNotFound", r#"not found: instance with name "nobody""#),
        )
        .await
}

/// 400 with and without a code.
async fn bad_requests(story: &mut Story, client: &Client) -> Outcome<()> {
    let disk = |size: u64| {
        client
            .disk_create()
            .project(PROJECT)
            .body_map(|body| body.name("twice").description("").size(size).disk_backend(blank()))
            .send()
    };
    story
        .refused(
            "400 InvalidValue for a size that no disk has",
            disk(GIB + 512),
            refusal(400, "InvalidValue", "total size must be a multiple of 1 GiB"),
        )
        .await?;
    let first = story.call("disk_create", disk(GIB)).await?;
    story
        .refused(
            "400 ObjectAlreadyExists for a taken name",
            disk(GIB),
            refusal(400, "ObjectAlreadyExists", r#"already exists: disk "twice""#),
        )
        .await?;
    story
        .refused(
            "400 InvalidRequest for an id and a project",
            client.disk_view().disk(first.id).project(PROJECT).send(),
            refusal(
                400,
                "InvalidRequest",
                "when providing disk as an ID project should not be specified",
            ),
        )
        .await?;
    // The SDK's own check of names lets upper case pass behind the first letter; a rack's does not.
    story
        .refused(
            "400 without a code for a body that cannot be parsed",
            client
                .project_create()
                .body_map(|body| body.name("aLoud").description(""))
                .send(),
            Refusal {
                status: 400,
                code: None,
                says: "unable to parse JSON body",
            },
        )
        .await?;
    story
        .refused(
            "400 without a code for a list without its project",
            client.disk_list().send(),
            Refusal {
                status: 400,
                code: None,
                says: "missing field `project`",
            },
        )
        .await
}

/// 409 and 503 for what the state of an instance does not allow now.
async fn states(story: &mut Story, client: &Client) -> Outcome<()> {
    let instance = story
        .call(
            "instance_create",
            client
                .instance_create()
                .project(PROJECT)
                .body(bare_instance("mover").network_interfaces(types::InstanceNetworkInterfaceAttachment::DefaultIpv4))
                .send(),
        )
        .await?;
    let address = story
        .call(
            "floating_ip_create",
            client
                .floating_ip_create()
                .project(PROJECT)
                .body_map(|body| {
                    body.name("moving")
                        .description("")
                        .address_allocator(types::AddressAllocator::Auto {
                            pool_selector: any_ipv4(),
                        })
                })
                .send(),
        )
        .await?;
    story
        .call("instance_start", client.instance_start().instance(instance.id).send())
        .await?;
    story
        .refused(
            "503 for an attach while the instance starts",
            client
                .floating_ip_attach()
                .floating_ip(address.id)
                .body_map(|body| body.kind(types::FloatingIpParentKind::Instance).parent(instance.id))
                .send(),
            refusal(503, "ServiceNotAvailable", "Service Unavailable"),
        )
        .await?;
    story
        .refused(
            "400 InvalidRequest for the deletion of an instance that is not stopped",
            client.instance_delete().instance(instance.id).send(),
            refusal(400, "InvalidRequest", "cannot delete instance"),
        )
        .await?;
    wait_for(story, client, instance.id, types::InstanceState::Running).await?;
    story
        .call("instance_stop", client.instance_stop().instance(instance.id).send())
        .await?;
    story
        .refused(
            "409 for a start while the instance stops",
            client.instance_start().instance(instance.id).send(),
            refusal(
                409,
                "Conflict",
                "instance must finish stopping before it can be started",
            ),
        )
        .await?;
    wait_for(story, client, instance.id, types::InstanceState::Stopped).await?;
    story
        .call("instance_delete", client.instance_delete().instance(instance.id).send())
        .await?;
    story
        .call(
            "floating_ip_delete",
            client.floating_ip_delete().floating_ip(address.id).send(),
        )
        .await
}

/// 507 for storage at once, and for an instance when it is started.
async fn no_room(story: &mut Story, clients: &Clients) -> Outcome<()> {
    let client = &clients.small;
    story
        .call(
            "project_create in a silo without room",
            client
                .project_create()
                .body_map(|body| body.name("cramped").description(""))
                .send(),
        )
        .await?;
    story
        .refused(
            "507 for a disk",
            client
                .disk_create()
                .project("cramped")
                .body_map(|body| body.name("big").description("").size(2 * GIB).disk_backend(blank()))
                .send(),
            refusal(507, "InsufficientCapacity", "Storage Limit Exceeded"),
        )
        .await?;
    let instance = story
        .call(
            "instance_create, whose start fails unsaid",
            client
                .instance_create()
                .project("cramped")
                .body(bare_instance("big").ncpus(2).start(true))
                .send(),
        )
        .await?;
    story.check(
        "it is stopped",
        instance.run_state == types::InstanceState::Stopped,
        || format!("{instance:?}"),
    )?;
    story
        .refused(
            "507 for its start",
            client.instance_start().instance(instance.id).send(),
            refusal(507, "InsufficientCapacity", "vCPU Limit Exceeded"),
        )
        .await?;
    let address = |name: &'static str| {
        let pool_selector = types::PoolSelector::Explicit {
            pool: crate::fixtures::name("tiny").into(),
        };
        client
            .floating_ip_create()
            .project("cramped")
            .body_map(|body| {
                body.name(name)
                    .description("")
                    .address_allocator(types::AddressAllocator::Auto { pool_selector })
            })
            .send()
    };
    story
        .call("floating_ip_create, the pool's only address", address("first"))
        .await?;
    story
        .refused(
            "507 for one more address",
            address("second"),
            refusal(507, "InsufficientCapacity", "No external IP addresses available"),
        )
        .await
}
