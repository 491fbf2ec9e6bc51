//! The life of one instance with all that can belong to it.

use oxide::{Client, prelude::*, types};
use uuid::Uuid;

use crate::access::SSH_KEY;
use crate::attachments;
use crate::console::wait_for;
use crate::fixtures::{GIB, PROJECT, any_ipv4, name};
use crate::network::{FLOATING_IP, SUBNET};
use crate::story::{Outcome, Story};

pub const GROUP: &str = "control-plane";
pub const INSTANCE: &str = "node-0";

pub async fn tell(story: &mut Story, client: &Client, image: Uuid) -> Outcome<()> {
    make_group(story, client).await?;
    let instance = create(story, client, image).await?;
    look(story, client, instance).await?;
    power(story, client, instance).await?;
    attachments::addresses(story, client, instance).await?;
    attachments::groups(story, client, instance).await?;
    stop(story, client, instance).await?;
    attachments::interfaces(story, client, instance).await?;
    attachments::disks(story, client, instance).await?;
    resize(story, client, instance).await?;
    delete(story, client, instance).await
}

async fn make_group(story: &mut Story, client: &Client) -> Outcome<()> {
    let group = story
        .call(
            "anti_affinity_group_create",
            client
                .anti_affinity_group_create()
                .project(PROJECT)
                .body_map(|body| {
                    body.name("draft")
                        .description("")
                        .policy(types::AffinityPolicy::Fail)
                        .failure_domain(types::FailureDomain::Sled)
                })
                .send(),
        )
        .await?;
    story
        .call(
            "anti_affinity_group_update",
            client
                .anti_affinity_group_update()
                .anti_affinity_group(group.id)
                .body_map(|body| body.name(name(GROUP)))
                .send(),
        )
        .await?;
    let seen = story
        .call(
            "anti_affinity_group_view",
            client
                .anti_affinity_group_view()
                .anti_affinity_group(GROUP)
                .project(PROJECT)
                .send(),
        )
        .await?;
    story.check("it is the same group", seen.id == group.id, || format!("{seen:?}"))?;
    let listed = story
        .all(
            "anti_affinity_group_list",
            client.anti_affinity_group_list().project(PROJECT).stream(),
        )
        .await?;
    story.check("it is listed", listed.len() == 1, || format!("{listed:?}"))
}

/// An instance with two disks, a NIC, two external addresses, a key and a group, which starts.
async fn create(story: &mut Story, client: &Client, image: Uuid) -> Outcome<Uuid> {
    let boot_disk = types::InstanceDiskAttachment::Create {
        name: name("node-0-root"),
        description: String::new(),
        size: (4 * GIB).into(),
        disk_backend: types::DiskBackend::Distributed(types::DiskSource::Image {
            image_id: image,
            read_only: false,
        }),
    };
    let interface = types::InstanceNetworkInterfaceCreate {
        name: name("eth0"),
        description: String::new(),
        vpc_name: name("default"),
        subnet_name: name(SUBNET),
        ip_config: types::PrivateIpStackCreate::V4(types::PrivateIpv4StackCreate {
            ip: types::Ipv4Assignment::Auto,
            transit_ips: Vec::new(),
        }),
    };
    let external_ips = vec![
        types::ExternalIpCreate::Floating {
            floating_ip: name(FLOATING_IP).into(),
        },
        types::ExternalIpCreate::Ephemeral {
            pool_selector: any_ipv4(),
        },
    ];
    let instance = story
        .call(
            "instance_create",
            client
                .instance_create()
                .project(PROJECT)
                .body_map(|body| {
                    body.name(INSTANCE)
                        .description("with everything")
                        .hostname(INSTANCE)
                        .ncpus(4)
                        .memory(8 * GIB)
                        .boot_disk(boot_disk)
                        .disks(vec![types::InstanceDiskAttachment::Attach { name: name("data") }])
                        .network_interfaces(types::InstanceNetworkInterfaceAttachment::Create(vec![interface]))
                        .external_ips(external_ips)
                        .ssh_public_keys(vec![name(SSH_KEY).into()])
                        .anti_affinity_groups(vec![name(GROUP).into()])
                        .auto_restart_policy(types::InstanceAutoRestartPolicy::BestEffort)
                        .user_data("I2Nsb3VkLWNvbmZpZwo=")
                        .start(true)
                })
                .send(),
        )
        .await?;
    wait_for(story, client, instance.id, types::InstanceState::Running).await?;
    Ok(instance.id)
}

/// Everything that can be seen of an instance.
async fn look(story: &mut Story, client: &Client, instance: Uuid) -> Outcome<()> {
    let disks = story
        .all(
            "instance_disk_list",
            client.instance_disk_list().instance(instance).stream(),
        )
        .await?;
    story.check(
        "both disks are attached",
        disks.len() == 2 && disks.iter().all(|disk| attachments::is_attached(disk, instance)),
        || format!("{disks:?}"),
    )?;
    let interfaces = story
        .all(
            "instance_network_interface_list",
            client.instance_network_interface_list().instance(instance).stream(),
        )
        .await?;
    story.check(
        "there is one NIC, the primary one",
        interfaces.len() == 1 && interfaces[0].primary,
        || format!("{interfaces:?}"),
    )?;
    story
        .call(
            "instance_network_interface_view",
            client
                .instance_network_interface_view()
                .interface("eth0")
                .instance(INSTANCE)
                .project(PROJECT)
                .send(),
        )
        .await?;
    let addresses = story
        .call(
            "instance_external_ip_list",
            client.instance_external_ip_list().instance(instance).send(),
        )
        .await?;
    let kinds = |wanted: fn(&types::ExternalIp) -> bool| addresses.items.iter().filter(|ip| wanted(ip)).count();
    story.check(
        "there are one address of each kind",
        kinds(|ip| matches!(ip, types::ExternalIp::Snat { .. })) == 1
            && kinds(|ip| matches!(ip, types::ExternalIp::Ephemeral { .. })) == 1
            && kinds(|ip| matches!(ip, types::ExternalIp::Floating { .. })) == 1,
        || format!("{addresses:?}"),
    )?;
    let keys = story
        .all(
            "instance_ssh_public_key_list",
            client.instance_ssh_public_key_list().instance(instance).stream(),
        )
        .await?;
    story.check("it has the key", keys.len() == 1 && *keys[0].name == SSH_KEY, || {
        format!("{keys:?}")
    })?;
    let groups = story
        .all(
            "instance_anti_affinity_group_list",
            client.instance_anti_affinity_group_list().instance(instance).stream(),
        )
        .await?;
    story.check(
        "it is in the group",
        groups.len() == 1 && *groups[0].name == GROUP,
        || format!("{groups:?}"),
    )?;
    let used = story.call("utilization_view", client.utilization_view().send()).await?;
    story.check("it counts", used.provisioned.cpus == 4, || format!("{used:?}"))
}

async fn power(story: &mut Story, client: &Client, instance: Uuid) -> Outcome<()> {
    story
        .call("instance_reboot", client.instance_reboot().instance(instance).send())
        .await?;
    wait_for(story, client, instance, types::InstanceState::Running).await?;
    stop(story, client, instance).await?;
    story
        .call(
            "instance_start",
            client.instance_start().instance(INSTANCE).project(PROJECT).send(),
        )
        .await?;
    wait_for(story, client, instance, types::InstanceState::Running).await
}

pub async fn stop(story: &mut Story, client: &Client, instance: Uuid) -> Outcome<()> {
    story
        .call("instance_stop", client.instance_stop().instance(instance).send())
        .await?;
    wait_for(story, client, instance, types::InstanceState::Stopped).await
}

async fn resize(story: &mut Story, client: &Client, instance: Uuid) -> Outcome<()> {
    let changed = story
        .call(
            "instance_update",
            client
                .instance_update()
                .instance(instance)
                .body_map(|body| {
                    body.ncpus(8)
                        .memory(16 * GIB)
                        .boot_disk(None)
                        .auto_restart_policy(Some(types::InstanceAutoRestartPolicy::Never))
                        .cpu_platform(None)
                        .enable_jumbo_frames(false)
                })
                .send(),
        )
        .await?;
    story.check(
        "it is larger and has no boot disk",
        *changed.ncpus == 8 && changed.boot_disk_id.is_none() && !changed.auto_restart_enabled,
        || format!("{changed:?}"),
    )
}

/// The instance goes; its disks and its floating IP stay and are free.
async fn delete(story: &mut Story, client: &Client, instance: Uuid) -> Outcome<()> {
    story
        .call("instance_delete", client.instance_delete().instance(instance).send())
        .await?;
    for disk in ["node-0-root", "data"] {
        let disk = story
            .call("disk_view", client.disk_view().disk(disk).project(PROJECT).send())
            .await?;
        story.check(
            "it is left, and detached",
            matches!(disk.state, types::DiskState::Detached),
            || format!("{disk:?}"),
        )?;
        story
            .call("disk_delete", client.disk_delete().disk(disk.id).send())
            .await?;
    }
    let address = story
        .call(
            "floating_ip_view",
            client
                .floating_ip_view()
                .floating_ip(FLOATING_IP)
                .project(PROJECT)
                .send(),
        )
        .await?;
    story.check("it is left, and free", address.instance_id.is_none(), || {
        format!("{address:?}")
    })?;
    story
        .call(
            "floating_ip_delete",
            client.floating_ip_delete().floating_ip(address.id).send(),
        )
        .await?;
    story
        .call(
            "vpc_subnet_delete",
            client
                .vpc_subnet_delete()
                .subnet(SUBNET)
                .vpc("default")
                .project(PROJECT)
                .send(),
        )
        .await?;
    story
        .call(
            "anti_affinity_group_delete",
            client
                .anti_affinity_group_delete()
                .anti_affinity_group(GROUP)
                .project(PROJECT)
                .send(),
        )
        .await
}
