//! What an error tells programs: the JSON of `--json`, with the facts that people find in the message.

use serde_json::{Map, Value, json};

use super::{Error, Place};
use crate::id::TaskId;
use crate::poll::PollError;
use crate::protocol::record::Phase;
use crate::protocol::refusal::{HeldBy, Lapse, Refusal, Unmet};
use crate::protocol::sticky::{Bound, Misfit};
use crate::store::StoreError;
use crate::verifier::VerifierError;
use crate::verifier::allow::line_to_add;

impl Error {
    /// The JSON object that `--json` prints on stderr.
    pub fn to_json(&self) -> Value {
        let code = self.exit_code();
        let mut map = Map::new();
        map.insert("code".to_owned(), json!(code.name()));
        map.insert("exit".to_owned(), json!(code.number()));
        map.insert("message".to_owned(), json!(self.to_string()));
        match self {
            Error::Refused { task, place, refusal } => refused(*task, place, refusal, &mut map),
            Error::LostMeanwhile { task, place, refusal, .. } => refused(*task, place, refusal, &mut map),
            Error::UnknownTask { candidates, .. } => {
                map.insert("candidates".to_owned(), json!(candidates));
            }
            Error::SlugTaken { place, task, .. } => {
                map.insert("task".to_owned(), json!(task));
                map.insert("queue".to_owned(), json!(place.queue));
                map.insert("slug".to_owned(), json!(place.slug));
            }
            Error::Plan(error) => error.facts(&mut map),
            Error::Damaged { name, commit, found } => {
                map.insert("ref".to_owned(), json!(name));
                map.insert("commit".to_owned(), json!(commit));
                map.insert("found".to_owned(), json!(found));
            }
            Error::Unreachable { remote, why } => {
                map.insert("remote".to_owned(), json!(remote));
                map.insert("why".to_owned(), json!(why));
            }
            Error::AnswerLost { place, record, remote, .. } => {
                map.insert("queue".to_owned(), json!(place.queue));
                map.insert("slug".to_owned(), json!(place.slug));
                map.insert("record".to_owned(), json!(record));
                map.insert("remote".to_owned(), json!(remote));
                map.insert("recorded".to_owned(), json!("unknown"));
            }
            Error::Busy { name, .. } => {
                map.insert("ref".to_owned(), json!(name));
            }
            Error::TipMoved { name, tip } => {
                map.insert("ref".to_owned(), json!(name));
                map.insert("tip".to_owned(), json!(tip));
            }
            Error::Distrusted { name, remote, found } => {
                map.insert("ref".to_owned(), json!(name));
                map.insert("remote".to_owned(), json!(remote));
                map.insert("found".to_owned(), json!(found));
            }
            Error::VerifierFailed { place, verified, timed_out } => {
                map.insert("queue".to_owned(), json!(place.queue));
                map.insert("slug".to_owned(), json!(place.slug));
                map.insert("report".to_owned(), json!(verified.report));
                map.insert("verifier".to_owned(), json!(verified.verification.verifier));
                map.insert("verifier_exit".to_owned(), json!(verified.verification.exit));
                map.insert("verifier_summary".to_owned(), json!(verified.verification.summary));
                map.insert("timed_out".to_owned(), json!(timed_out));
            }
            Error::Verifier(place, error) => {
                map.insert("queue".to_owned(), json!(place.queue));
                map.insert("slug".to_owned(), json!(place.slug));
                if let VerifierError::NotAllowed(not) = error {
                    map.insert("verifier".to_owned(), json!(not.verifier));
                    map.insert("remedy".to_owned(), json!(line_to_add(&not.verifier)));
                }
            }
            Error::ParentWithoutStatus { place } => {
                map.insert("queue".to_owned(), json!(place.queue));
                map.insert("slug".to_owned(), json!(place.slug));
            }
            Error::DeliveryRefused { place, branch, .. } => {
                map.insert("queue".to_owned(), json!(place.queue));
                map.insert("slug".to_owned(), json!(place.slug));
                map.insert("branch".to_owned(), json!(branch));
            }
            Error::Wait(error) => error.facts(&mut map),
            Error::Store(StoreError::BrokenRef { name, found }) => {
                map.insert("ref".to_owned(), json!(name));
                map.insert("found".to_owned(), json!(found));
            }
            Error::Store(StoreError::Locked { path, waited_ms }) => {
                map.insert("path".to_owned(), json!(path.display().to_string()));
                map.insert("waited_ms".to_owned(), json!(waited_ms));
            }
            Error::Store(StoreError::RecordedUnknown { name, .. }) => {
                map.insert("recorded".to_owned(), json!("unknown"));
                map.insert("ref".to_owned(), json!(name));
            }
            Error::Poll(PollError::Held { path, pid }) => {
                map.insert("path".to_owned(), json!(path.display().to_string()));
                map.extend(pid.map(|pid| ("pid".to_owned(), json!(pid))));
            }
            Error::Usage(_)
            | Error::Poll(_)
            | Error::BatchRaced { .. }
            | Error::InvalidGraph(_)
            | Error::NotStarted { .. }
            | Error::Tour(_)
            | Error::Store(_)
            | Error::Io { .. } => {}
        }
        json!({ "error": map })
    }
}

fn refused(task: TaskId, place: &Place, refusal: &Refusal, map: &mut Map<String, Value>) {
    map.insert("task".to_owned(), json!(task));
    map.insert("queue".to_owned(), json!(place.queue));
    map.insert("slug".to_owned(), json!(place.slug));
    refusal_facts(refusal, map);
}

fn refusal_facts(refusal: &Refusal, map: &mut Map<String, Value>) {
    let mut put_held = |held: &HeldBy| {
        map.insert("holder".to_owned(), json!(held.holder));
        map.insert("claim".to_owned(), json!(held.claim));
        map.insert("yours".to_owned(), json!(held.yours));
    };
    match refusal {
        Refusal::WrongPhase { phase, held, successor, .. } => {
            held.iter().for_each(&mut put_held);
            map.insert("status".to_owned(), json!(phase.as_str()));
            map.extend(successor.iter().map(|successor| ("successor".to_owned(), told(successor))));
        }
        Refusal::Replaced { by } => {
            map.insert("status".to_owned(), json!(Phase::Superseded.as_str()));
            map.insert("successor".to_owned(), told(by));
        }
        Refusal::LeaseLost { held, .. } => put_held(held),
        Refusal::LeaseLapsed { claim, lapse } => {
            map.insert("claim".to_owned(), json!(claim));
            match lapse {
                Lapse::NotHeld(phase) => map.insert("status".to_owned(), json!(phase.as_str())),
                Lapse::TooShort { left_ms, .. } => map.insert("lease_left_ms".to_owned(), json!(left_ms)),
                Lapse::AnotherClock => None,
            };
        }
        Refusal::RaceLost { held } => held.iter().for_each(put_held),
        Refusal::Outdated { verified, newest } => {
            map.insert("report".to_owned(), json!(verified));
            map.insert("newest_report".to_owned(), json!(newest));
        }
        Refusal::DependenciesOpen { open } => {
            map.insert("blocked_by".to_owned(), json!(open.iter().map(told).collect::<Vec<_>>()));
        }
        Refusal::ParentNotClaimed { parent: other } | Refusal::NotReplacedYet { original: other } => {
            map.insert("blocked_by".to_owned(), json!([told(other)]));
        }
        Refusal::ChildrenOpen { open } => {
            map.insert("children".to_owned(), json!(open.iter().map(told).collect::<Vec<_>>()));
        }
        Refusal::Obscured { unread, .. } => {
            let unread = unread.iter().map(|unread| json!({"ref": unread.name, "found": unread.found}));
            map.insert("damaged".to_owned(), unread.collect());
        }
        Refusal::Context(misfit) => {
            let bound = |bound: &Bound| {
                let (queue, slug) = &bound.place;
                json!({"queue": queue, "slug": slug, "context_id": bound.context, "status": bound.phase.as_str()})
            };
            let bound: Vec<_> = match misfit {
                Misfit::Missing { wanted } => wanted.iter().map(bound).collect(),
                Misfit::Other { wanted, .. } => vec![bound(wanted)],
                Misfit::Split { first, second } => vec![bound(first), bound(second)],
            };
            map.insert("bound".to_owned(), json!(bound));
        }
        Refusal::NotVerified { verifier } => {
            map.insert("verifier".to_owned(), json!(verifier));
        }
        Refusal::NoStatus | Refusal::Contradiction { .. } | Refusal::NoReport | Refusal::SkipWithoutNote => {}
    }
}

/// Another task, as a refusal tells of it.
fn told(unmet: &Unmet) -> Value {
    let place = unmet.place.as_ref();
    json!({
        "task": unmet.task,
        "queue": place.map(|(queue, _)| queue),
        "slug": place.map(|(_, slug)| slug),
        "status": unmet.phase.map(|phase| phase.as_str()),
    })
}
