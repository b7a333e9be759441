//! The requests of a connection: those that are carried out, and those that wait until there is room.

use std::collections::VecDeque;

use super::admission::{Class, Lane, Load, Verdict};
use crate::service::Call;

/// Requests that run, and those that are parked, with their bytes.
#[derive(Default)]
pub(super) struct Queue {
    load: Load,
    plain: VecDeque<(Call, usize)>,
    contending: VecDeque<(Call, usize)>,
}

/// What became of a request.
pub(super) enum Offered {
    Run(Box<Call>),
    Parked,
    Full(Box<Call>),
    Refused,
}

impl Queue {
    /// A request came.
    pub fn offer(&mut self, call: Call, class: Class, calling: bool) -> Offered {
        match self.load.admit(class, calling) {
            Verdict::Run => {
                self.load.enter(class);
                return Offered::Run(Box::new(call));
            }
            Verdict::Park => {}
            Verdict::Stop => return Offered::Full(Box::new(call)),
            Verdict::Refuse => return Offered::Refused,
        }
        let (parked, lane, bytes) = match class {
            Class::Plain(bytes) => (&mut self.plain, &mut self.load.plain, bytes),
            Class::Contending(bytes) => (&mut self.contending, &mut self.load.contending, bytes),
            Class::Reserved | Class::Waiting => return Offered::Full(Box::new(call)),
        };
        lane.park(bytes);
        parked.push_back((call, bytes));
        Offered::Parked
    }

    /// A request of this class was done.
    pub fn leave(&mut self, class: Class) {
        self.load.leave(class);
    }

    /// The next parked request, if one may run now.
    pub fn unpark(&mut self) -> Option<(Call, Class)> {
        let Load { plain, contending, .. } = &mut self.load;
        let (call, class) = unpark_from(plain, &mut self.plain)
            .map(|(call, bytes)| (call, Class::Plain(bytes)))
            .or_else(|| {
                let (call, bytes) = unpark_from(contending, &mut self.contending)?;
                Some((call, Class::Contending(bytes)))
            })?;
        self.load.enter(class);
        Some((call, class))
    }

    /// Those that will not run: the connection has ended.
    pub fn take_parked(&mut self) -> impl Iterator<Item = Call> + use<> {
        let (plain, contending) = (std::mem::take(&mut self.plain), std::mem::take(&mut self.contending));
        plain.into_iter().chain(contending).map(|(call, _)| call)
    }
}

fn unpark_from(lane: &mut Lane, parked: &mut VecDeque<(Call, usize)>) -> Option<(Call, usize)> {
    let (_, bytes) = parked.front()?;
    if !lane.may_unpark(*bytes) {
        return None;
    }
    let (call, bytes) = parked.pop_front()?;
    lane.unpark(bytes);
    Some((call, bytes))
}
