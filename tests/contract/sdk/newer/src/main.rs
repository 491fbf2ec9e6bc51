//! Asks a rack in a version of the API that is newer than the rack, and has to be refused.
//!
//! The rack's address is in `OXIDE_HOST` and a token in `OXIDE_TOKEN`.

use std::process::ExitCode;

use oxide::{Client, ClientInfo, Error, ResponseValue, prelude::*, types};

const VERSION: &str = "2026091500.0.0";

/// Whether a request was refused as one of a newer version is.
fn judge<T>(step: &str, answer: Result<ResponseValue<T>, Error<types::Error>>) -> bool {
    let message = format!("server does not support this API version: {VERSION}");
    let outcome = match answer {
        Ok(_) => Err("it was not refused".to_owned()),
        Err(Error::ErrorResponse(response)) => {
            let as_expected = response.status().as_u16() == 400
                && response.error_code.is_none()
                && response.message == message
                && !response.request_id.is_empty();
            if as_expected {
                Ok(())
            } else {
                Err(format!("{} {:?}", response.status().as_u16(), *response))
            }
        }
        Err(error) => Err(format!("{error:?}")),
    };
    match &outcome {
        Ok(()) => println!("ok      newer  {step}"),
        Err(why) => println!("FAILED  newer  {step}: {why}"),
    }
    outcome.is_ok()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let version = <Client as ClientInfo<()>>::api_version();
    println!("Speaking api-version {version}");
    let client = match Client::new_authenticated() {
        Ok(client) => client,
        Err(error) => {
            println!("FAILED  newer  preparation: {error}");
            return ExitCode::FAILURE;
        }
    };
    let judged = [
        version == VERSION,
        judge("400 for a ping, which needs no credentials", client.ping().send().await),
        judge("400 for the list of projects", client.project_list().send().await),
        judge(
            "400 for an instance",
            client.instance_view().instance("node").project("sdk").send().await,
        ),
    ];
    println!("The end");
    if judged.into_iter().all(|holds| holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
