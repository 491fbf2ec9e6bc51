//! Steps of a story: each is told on a line of its own, and the first one that fails ends its story.

use std::future::Future;
use std::time::Duration;

use futures::{Stream, TryStreamExt};
use oxide::{Error, ResponseValue, types};

/// What a step came to, or why it failed.
pub type Outcome<T> = Result<T, String>;

/// What the SDK gives back for a request.
pub type Answer<T> = Result<ResponseValue<T>, Error<types::Error>>;

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// How a refusal has to look.
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The body's `error_code`; none when the request failed before the API's own logic.
    pub code: Option<&'static str>,
    /// What the body's message contains.
    pub says: &'static str,
}

/// A story that is being told.
pub struct Story {
    name: &'static str,
    steps: usize,
}

impl Story {
    pub fn new(name: &'static str) -> Self {
        Self { name, steps: 0 }
    }

    /// The SDK's answer to a request; the SDK's types have judged it.
    pub async fn call<T>(&mut self, step: &str, answer: impl Future<Output = Answer<T>>) -> Outcome<T> {
        let outcome = answer
            .await
            .map(ResponseValue::into_inner)
            .map_err(|error| explain(&error));
        self.tell(step, outcome)
    }

    /// All items of a paged list, which the SDK fetches page by page.
    pub async fn all<T>(
        &mut self,
        step: &str,
        items: impl Stream<Item = Result<T, Error<types::Error>>>,
    ) -> Outcome<Vec<T>> {
        let outcome = items.try_collect().await.map_err(|error| explain(&error));
        self.tell(step, outcome)
    }

    /// A request that has to be refused in a certain way.
    pub async fn refused<T>(
        &mut self,
        step: &str,
        answer: impl Future<Output = Answer<T>>,
        expected: Refusal,
    ) -> Outcome<()> {
        let outcome = match answer.await {
            Ok(_) => Err("it was not refused".to_owned()),
            Err(Error::ErrorResponse(response)) => compare(&response, &expected),
            Err(error) => Err(explain(&error)),
        };
        self.tell(step, outcome)
    }

    /// Something that has to hold.
    pub fn check(&mut self, step: &str, holds: bool, otherwise: impl FnOnce() -> String) -> Outcome<()> {
        let outcome = if holds { Ok(()) } else { Err(otherwise()) };
        self.tell(step, outcome)
    }

    /// Look again and again until a look shows what is awaited.
    pub async fn wait<T, F>(
        &mut self,
        step: &str,
        mut look: impl FnMut() -> F,
        is_awaited: impl Fn(&T) -> bool,
    ) -> Outcome<T>
    where
        F: Future<Output = Answer<T>>,
        T: std::fmt::Debug,
    {
        let until = tokio::time::Instant::now() + PATIENCE;
        let outcome = loop {
            match look().await.map(ResponseValue::into_inner) {
                Err(error) => break Err(explain(&error)),
                Ok(seen) if is_awaited(&seen) => break Ok(seen),
                Ok(seen) if tokio::time::Instant::now() > until => {
                    break Err(format!("after {} s it still is {seen:?}", PATIENCE.as_secs()));
                }
                Ok(_) => tokio::time::sleep(PAUSE).await,
            }
        };
        self.tell(step, outcome)
    }

    /// Tell how a step went.
    pub fn tell<T>(&mut self, step: &str, outcome: Outcome<T>) -> Outcome<T> {
        self.steps += 1;
        match &outcome {
            Ok(_) => println!("ok      {} {:>2}  {step}", self.name, self.steps),
            Err(why) => println!("FAILED  {} {:>2}  {step}: {why}", self.name, self.steps),
        }
        outcome
    }
}

fn compare(response: &ResponseValue<types::Error>, expected: &Refusal) -> Outcome<()> {
    let status = response.status().as_u16();
    let as_expected = status == expected.status
        && response.error_code.as_deref() == expected.code
        && response.message.contains(expected.says)
        && !response.request_id.is_empty();
    if as_expected {
        return Ok(());
    }
    Err(format!(
        "refused by {status} {:?} {:?} instead of {} {:?} {:?}",
        response.error_code, response.message, expected.status, expected.code, expected.says
    ))
}

/// An error of the SDK as one line. Its own text leaves out what the rack said.
fn explain(error: &Error<types::Error>) -> String {
    match error {
        Error::ErrorResponse(response) => format!(
            "{} {:?} {:?}",
            response.status().as_u16(),
            response.error_code,
            response.message
        ),
        other => format!("{other:?}").replace('\n', " "),
    }
}
