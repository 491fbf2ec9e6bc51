//! VPCs, subnets, firewall rules, pools, and addresses that nobody uses yet.

use oxide::{Client, prelude::*, types};

use crate::fixtures::{PROJECT, any_ipv4, name};
use crate::story::{Outcome, Story};

/// The subnet beside the default one.
pub const SUBNET: &str = "nodes";
/// The address that will belong to an instance.
pub const FLOATING_IP: &str = "endpoint";
/// The prefix that will belong to an instance.
pub const EXTERNAL_SUBNET: &str = "pods";

pub async fn tell(story: &mut Story, client: &Client) -> Outcome<()> {
    vpcs(story, client).await?;
    subnets(story, client).await?;
    routes(story, client).await?;
    firewall(story, client).await?;
    pools(story, client).await?;
    floating_ips(story, client).await?;
    external_subnets(story, client).await
}

async fn vpcs(story: &mut Story, client: &Client) -> Outcome<()> {
    let vpc = story
        .call(
            "vpc_create",
            client
                .vpc_create()
                .project(PROJECT)
                .body_map(|body| body.name("second").description("").dns_name("second"))
                .send(),
        )
        .await?;
    story
        .call(
            "vpc_update",
            client
                .vpc_update()
                .vpc(vpc.id)
                .body_map(|body| body.description("another".to_owned()))
                .send(),
        )
        .await?;
    story.call("vpc_view", client.vpc_view().vpc(vpc.id).send()).await?;
    let listed = story
        .all("vpc_list", client.vpc_list().project(PROJECT).stream())
        .await?;
    story.check("default and second are there", listed.len() == 2, || {
        format!("{listed:?}")
    })?;
    story
        .call(
            "vpc_subnet_delete",
            client
                .vpc_subnet_delete()
                .subnet("default")
                .vpc("second")
                .project(PROJECT)
                .send(),
        )
        .await?;
    story
        .call("vpc_delete", client.vpc_delete().vpc("second").project(PROJECT).send())
        .await
}

async fn subnets(story: &mut Story, client: &Client) -> Outcome<()> {
    let block: types::Ipv4Net = "10.20.0.0/24".parse().expect("an IPv4 network");
    let subnet = story
        .call(
            "vpc_subnet_create",
            client
                .vpc_subnet_create()
                .vpc("default")
                .project(PROJECT)
                .body_map(|body| body.name(SUBNET).description("").ipv4_block(block))
                .send(),
        )
        .await?;
    story
        .call(
            "vpc_subnet_update",
            client
                .vpc_subnet_update()
                .subnet(subnet.id)
                .body_map(|body| body.description("for nodes".to_owned()))
                .send(),
        )
        .await?;
    story
        .call("vpc_subnet_view", client.vpc_subnet_view().subnet(subnet.id).send())
        .await?;
    let listed = story
        .all(
            "vpc_subnet_list",
            client.vpc_subnet_list().vpc("default").project(PROJECT).stream(),
        )
        .await?;
    story.check("default and nodes are there", listed.len() == 2, || {
        format!("{listed:?}")
    })?;
    let interfaces = story
        .all(
            "vpc_subnet_list_network_interfaces",
            client.vpc_subnet_list_network_interfaces().subnet(subnet.id).stream(),
        )
        .await?;
    story.check("nobody is in it yet", interfaces.is_empty(), || {
        format!("{interfaces:?}")
    })
}

async fn routes(story: &mut Story, client: &Client) -> Outcome<()> {
    let routers = story
        .all(
            "vpc_router_list",
            client.vpc_router_list().vpc("default").project(PROJECT).stream(),
        )
        .await?;
    let router = routers.first().map(|router| router.id);
    let router = story.tell("there is the system router", router.ok_or("there is none".to_owned()))?;
    story
        .call("vpc_router_view", client.vpc_router_view().router(router).send())
        .await?;
    let routes = story
        .all(
            "vpc_router_route_list",
            client.vpc_router_route_list().router(router).stream(),
        )
        .await?;
    for route in routes {
        story
            .call(
                &format!("vpc_router_route_view {}", *route.name),
                client.vpc_router_route_view().route(route.id).send(),
            )
            .await?;
    }
    let gateways = story
        .all(
            "internet_gateway_list",
            client.internet_gateway_list().vpc("default").project(PROJECT).stream(),
        )
        .await?;
    story.check("there is the default gateway", gateways.len() == 1, || {
        format!("{gateways:?}")
    })?;
    story
        .call(
            "internet_gateway_view",
            client.internet_gateway_view().gateway(gateways[0].id).send(),
        )
        .await?;
    let attached = story
        .all(
            "internet_gateway_ip_pool_list",
            client.internet_gateway_ip_pool_list().gateway(gateways[0].id).stream(),
        )
        .await?;
    story.check("the default pools are attached to it", !attached.is_empty(), || {
        format!("{attached:?}")
    })
}

async fn firewall(story: &mut Story, client: &Client) -> Outcome<()> {
    let before = story
        .call(
            "vpc_firewall_rules_view",
            client.vpc_firewall_rules_view().vpc("default").project(PROJECT).send(),
        )
        .await?;
    let mut rules: Vec<types::VpcFirewallRuleUpdate> = before
        .rules
        .iter()
        .map(|rule| types::VpcFirewallRuleUpdate {
            action: rule.action,
            description: rule.description.clone(),
            direction: rule.direction,
            filters: rule.filters.clone(),
            name: rule.name.clone(),
            priority: rule.priority,
            status: rule.status,
            targets: rule.targets.clone(),
        })
        .collect();
    rules.push(types::VpcFirewallRuleUpdate {
        action: types::VpcFirewallRuleAction::Allow,
        description: "the API server".to_owned(),
        direction: types::VpcFirewallRuleDirection::Inbound,
        filters: types::VpcFirewallRuleFilter {
            hosts: None,
            ports: Some(vec!["6443".parse().expect("a port")]),
            protocols: Some(vec![types::VpcFirewallRuleProtocol::Tcp]),
        },
        name: name("allow-api"),
        priority: 100,
        status: types::VpcFirewallRuleStatus::Enabled,
        targets: vec![types::VpcFirewallRuleTarget::Vpc(name("default"))],
    });
    let after = story
        .call(
            "vpc_firewall_rules_update",
            client
                .vpc_firewall_rules_update()
                .vpc("default")
                .project(PROJECT)
                .body_map(|body| body.rules(rules))
                .send(),
        )
        .await?;
    story.check(
        "there is one rule more, and all have new ids",
        after.rules.len() == before.rules.len() + 1
            && after
                .rules
                .iter()
                .all(|rule| before.rules.iter().all(|old| old.id != rule.id)),
        || format!("{after:?}"),
    )
}

async fn pools(story: &mut Story, client: &Client) -> Outcome<()> {
    for pool in story.all("ip_pool_list", client.ip_pool_list().stream()).await? {
        story
            .call(
                &format!("ip_pool_view {}", *pool.name),
                client.ip_pool_view().pool(pool.id).send(),
            )
            .await?;
    }
    for pool in story
        .all("subnet_pool_list", client.subnet_pool_list().stream())
        .await?
    {
        story
            .call(
                &format!("subnet_pool_view {}", *pool.name),
                client.subnet_pool_view().pool(pool.id).send(),
            )
            .await?;
    }
    Ok(())
}

async fn floating_ips(story: &mut Story, client: &Client) -> Outcome<()> {
    let made = story
        .call(
            "floating_ip_create",
            client
                .floating_ip_create()
                .project(PROJECT)
                .body_map(|body| {
                    body.name("draft")
                        .description("")
                        .address_allocator(types::AddressAllocator::Auto {
                            pool_selector: any_ipv4(),
                        })
                })
                .send(),
        )
        .await?;
    story
        .call(
            "floating_ip_update",
            client
                .floating_ip_update()
                .floating_ip(made.id)
                .body_map(|body| body.name(name(FLOATING_IP)))
                .send(),
        )
        .await?;
    let seen = story
        .call(
            "floating_ip_view",
            client
                .floating_ip_view()
                .floating_ip(FLOATING_IP)
                .project(PROJECT)
                .send(),
        )
        .await?;
    story.check(
        "it kept its address",
        seen.ip == made.ip && seen.instance_id.is_none(),
        || format!("{seen:?}"),
    )?;
    let listed = story
        .all("floating_ip_list", client.floating_ip_list().project(PROJECT).stream())
        .await?;
    story.check("it is listed", listed.len() == 1, || format!("{listed:?}"))
}

async fn external_subnets(story: &mut Story, client: &Client) -> Outcome<()> {
    let made = story
        .call(
            "external_subnet_create",
            client
                .external_subnet_create()
                .project(PROJECT)
                .body_map(|body| {
                    body.name(EXTERNAL_SUBNET)
                        .description("")
                        .allocator(types::ExternalSubnetAllocator::Auto {
                            pool_selector: any_ipv4(),
                            prefix_length: 28,
                        })
                })
                .send(),
        )
        .await?;
    story
        .call(
            "external_subnet_update",
            client
                .external_subnet_update()
                .external_subnet(made.id)
                .body_map(|body| body.description("for pods".to_owned()))
                .send(),
        )
        .await?;
    story
        .call(
            "external_subnet_view",
            client.external_subnet_view().external_subnet(made.id).send(),
        )
        .await?;
    let listed = story
        .all(
            "external_subnet_list",
            client.external_subnet_list().project(PROJECT).stream(),
        )
        .await?;
    story.check("it is listed", listed.len() == 1, || format!("{listed:?}"))
}
