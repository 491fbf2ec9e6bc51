//! What comes to an instance and leaves it: addresses, memberships, NICs and disks.

use oxide::{Client, prelude::*, types};
use uuid::Uuid;

use crate::fixtures::{PROJECT, any_ipv4, name};
use crate::instances::{GROUP, INSTANCE, stop};
use crate::network::{EXTERNAL_SUBNET, FLOATING_IP};
use crate::story::{Outcome, Refusal, Story};

/// Floating and ephemeral addresses and external subnets come and go while the instance runs.
pub async fn addresses(story: &mut Story, client: &Client, instance: Uuid) -> Outcome<()> {
    story
        .call(
            "floating_ip_detach",
            client
                .floating_ip_detach()
                .floating_ip(FLOATING_IP)
                .project(PROJECT)
                .send(),
        )
        .await?;
    let free = story
        .call(
            "floating_ip_view",
            client
                .floating_ip_view()
                .floating_ip(FLOATING_IP)
                .project(PROJECT)
                .send(),
        )
        .await?;
    story.check("it is free", free.instance_id.is_none(), || format!("{free:?}"))?;
    let attached = story
        .call(
            "floating_ip_attach",
            client
                .floating_ip_attach()
                .floating_ip(FLOATING_IP)
                .project(PROJECT)
                .body_map(|body| body.kind(types::FloatingIpParentKind::Instance).parent(name(INSTANCE)))
                .send(),
        )
        .await?;
    story.check("it is the instance's", attached.instance_id == Some(instance), || {
        format!("{attached:?}")
    })?;
    story
        .call(
            "instance_ephemeral_ip_detach",
            client.instance_ephemeral_ip_detach().instance(instance).send(),
        )
        .await?;
    story
        .call(
            "instance_ephemeral_ip_attach",
            client
                .instance_ephemeral_ip_attach()
                .instance(instance)
                .body_map(|body| body.pool_selector(any_ipv4()))
                .send(),
        )
        .await?;
    story
        .call(
            "external_subnet_attach",
            client
                .external_subnet_attach()
                .external_subnet(EXTERNAL_SUBNET)
                .project(PROJECT)
                .body_map(|body| body.instance(name(INSTANCE)))
                .send(),
        )
        .await?;
    let subnets = story
        .call(
            "instance_external_subnet_list",
            client.instance_external_subnet_list().instance(instance).send(),
        )
        .await?;
    story.check("it is listed", subnets.items.len() == 1, || format!("{subnets:?}"))?;
    story
        .call(
            "external_subnet_detach",
            client
                .external_subnet_detach()
                .external_subnet(EXTERNAL_SUBNET)
                .project(PROJECT)
                .send(),
        )
        .await?;
    story
        .call(
            "external_subnet_delete",
            client
                .external_subnet_delete()
                .external_subnet(EXTERNAL_SUBNET)
                .project(PROJECT)
                .send(),
        )
        .await
}

/// The instance leaves its group, and joins it again as soon as it is stopped.
pub async fn groups(story: &mut Story, client: &Client, instance: Uuid) -> Outcome<()> {
    let member = story
        .call(
            "anti_affinity_group_member_instance_view",
            client
                .anti_affinity_group_member_instance_view()
                .anti_affinity_group(GROUP)
                .instance(INSTANCE)
                .project(PROJECT)
                .send(),
        )
        .await?;
    let types::AntiAffinityGroupMember::Instance { id, .. } = member;
    story.check("it is the instance", id == instance, || format!("{id}"))?;
    story
        .call(
            "anti_affinity_group_member_instance_delete",
            client
                .anti_affinity_group_member_instance_delete()
                .anti_affinity_group(GROUP)
                .instance(INSTANCE)
                .project(PROJECT)
                .send(),
        )
        .await?;
    stop(story, client, instance).await?;
    story
        .call(
            "anti_affinity_group_member_instance_add",
            client
                .anti_affinity_group_member_instance_add()
                .anti_affinity_group(GROUP)
                .instance(INSTANCE)
                .project(PROJECT)
                .send(),
        )
        .await?;
    let members = story
        .all(
            "anti_affinity_group_member_list",
            client
                .anti_affinity_group_member_list()
                .anti_affinity_group(GROUP)
                .project(PROJECT)
                .stream(),
        )
        .await?;
    story.check("it is a member again", members.len() == 1, || format!("{members:?}"))
}

/// A second NIC is added, changed and taken away.
pub async fn interfaces(story: &mut Story, client: &Client, instance: Uuid) -> Outcome<()> {
    let interface = story
        .call(
            "instance_network_interface_create",
            client
                .instance_network_interface_create()
                .instance(instance)
                .body_map(|body| {
                    body.name("eth1")
                        .description("")
                        .vpc_name("default")
                        .subnet_name("default")
                })
                .send(),
        )
        .await?;
    let transit: types::IpNet = types::IpNet::V4("10.244.0.0/16".parse().expect("an IPv4 network"));
    let changed = story
        .call(
            "instance_network_interface_update",
            client
                .instance_network_interface_update()
                .interface(interface.id)
                .body_map(|body| body.transit_ips(vec![transit]))
                .send(),
        )
        .await?;
    story.check(
        "it is of both families and lets pods through",
        matches!(&changed.ip_stack, types::PrivateIpStack::DualStack { v4, .. } if v4.transit_ips.len() == 1),
        || format!("{changed:?}"),
    )?;
    story
        .call(
            "instance_network_interface_delete",
            client
                .instance_network_interface_delete()
                .interface(interface.id)
                .send(),
        )
        .await
}

pub fn is_attached(disk: &types::Disk, to: Uuid) -> bool {
    matches!(disk.state, types::DiskState::Attached(instance) if instance == to)
}

/// A disk is detached and attached again; the boot disk is not let go.
pub async fn disks(story: &mut Story, client: &Client, instance: Uuid) -> Outcome<()> {
    let detached = story
        .call(
            "instance_disk_detach",
            client
                .instance_disk_detach()
                .instance(instance)
                .body_map(|body| body.disk(name("data")))
                .send(),
        )
        .await?;
    story.check(
        "it is detached",
        matches!(detached.state, types::DiskState::Detached),
        || format!("{detached:?}"),
    )?;
    let attached = story
        .call(
            "instance_disk_attach",
            client
                .instance_disk_attach()
                .instance(instance)
                .body_map(|body| body.disk(detached.id))
                .send(),
        )
        .await?;
    story.check("it is attached", is_attached(&attached, instance), || {
        format!("{attached:?}")
    })?;
    story
        .refused(
            "instance_disk_detach of the boot disk",
            client
                .instance_disk_detach()
                .instance(instance)
                .body_map(|body| body.disk(name("node-0-root")))
                .send(),
            Refusal {
                status: 409,
                code: Some("Conflict"),
                says: "boot disk cannot be detached",
            },
        )
        .await
}
