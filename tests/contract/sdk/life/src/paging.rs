//! Lists of more than one page.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use oxide::{Client, prelude::*, types};
use uuid::Uuid;

use crate::fixtures::{PROJECT, bare_instance};
use crate::story::{Outcome, Story};

const INSTANCES: usize = 250;
const AT_ONCE: usize = 10;

pub async fn tell(story: &mut Story, client: &Client) -> Outcome<()> {
    let made = stream::iter(0..INSTANCES)
        .map(|number| {
            client
                .instance_create()
                .project(PROJECT)
                .body(bare_instance(&format!("page-{number:03}")))
                .send()
        })
        .buffer_unordered(AT_ONCE)
        .map_ok(|instance| instance.id)
        .try_collect::<BTreeSet<Uuid>>()
        .await
        .map_err(|error| error.to_string());
    let made = story.tell("instance_create, 250 times and 10 at once", made)?;

    let mut lists = Vec::new();
    for (limit, order) in [
        (None, types::NameOrIdSortMode::NameAscending),
        (Some(37), types::NameOrIdSortMode::NameDescending),
        (Some(1000), types::NameOrIdSortMode::IdAscending),
    ] {
        let mut list = client.instance_list().project(PROJECT).sort_by(order);
        if let Some(limit) = limit {
            list = list.limit(limit);
        }
        let listed = story
            .all(&format!("instance_list, pages of {limit:?}, {order}"), list.stream())
            .await?;
        let ids: BTreeSet<Uuid> = listed.iter().map(|instance| instance.id).collect();
        story.check(
            "every instance is there once",
            ids == made && listed.len() == INSTANCES,
            || format!("{} entries, {} instances", listed.len(), ids.len()),
        )?;
        lists.push(listed);
    }
    let names: Vec<&str> = lists[0].iter().map(|instance| instance.name.as_str()).collect();
    let backwards: Vec<&str> = lists[1].iter().rev().map(|instance| instance.name.as_str()).collect();
    story.check(
        "names ascend and descend",
        names.is_sorted() && names == backwards,
        || format!("{names:?}"),
    )?;
    story.check(
        "ids ascend",
        lists[2].iter().map(|instance| instance.id).is_sorted(),
        || "they do not".to_owned(),
    )?;

    let page = story
        .call(
            "instance_list, a page beyond the largest",
            client.instance_list().project(PROJECT).limit(20_000).send(),
        )
        .await?;
    story.check(
        "a page with items has a token, though it is the last",
        page.items.len() == INSTANCES && page.next_page.is_some(),
        || format!("{} items, token {:?}", page.items.len(), page.next_page),
    )?;
    let token = page.next_page.unwrap_or_default();
    let end = story
        .call(
            "instance_list, the page behind",
            client.instance_list().page_token(token).send(),
        )
        .await?;
    story.check(
        "it is empty and has none",
        end.items.is_empty() && end.next_page.is_none(),
        || format!("{end:?}"),
    )?;

    let deleted = stream::iter(made)
        .map(|id| client.instance_delete().instance(id).send())
        .buffer_unordered(AT_ONCE)
        .try_for_each(|_| async { Ok(()) })
        .await
        .map_err(|error| error.to_string());
    story.tell("instance_delete, 250 times", deleted)
}
