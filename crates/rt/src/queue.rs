//! The queues of disks: which I/O scheduler a disk has, and which one suits it.

/// No scheduler: requests go to the device in the order in which they come.
pub const NONE: &str = "none";
/// Sorts requests by place and bounds how long one waits.
const DEADLINE: &str = "mq-deadline";

/// The queue of a disk, as the kernel says it in `/sys/block/DISK/queue`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// The disk's name, as in `/sys/block`: `sda`.
    pub disk: String,
    /// Whether the kernel takes it for one with heads that move.
    pub rotational: bool,
    /// Whether another kernel or program orders its requests once more: a loop device, the disk of a virtual machine.
    pub is_virtual: bool,
    /// The I/O scheduler that it has.
    pub scheduler: String,
    /// Those that the kernel offers.
    pub choices: Vec<String>,
}

impl Queue {
    /// The scheduler that suits the disk. Order matters to heads alone; for all others a scheduler costs time and gains nothing, and
    /// below a virtual disk another one orders. The scheduler that it has, where the kernel does not offer the better one.
    pub fn suitable(&self) -> &str {
        let better = if self.rotational && !self.is_virtual { DEADLINE } else { NONE };
        if self.choices.iter().any(|choice| choice == better) { better } else { &self.scheduler }
    }

    /// Whether the disk has the scheduler that suits it.
    pub fn is_suitable(&self) -> bool {
        self.scheduler == self.suitable()
    }
}

impl std::fmt::Display for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match (self.is_virtual, self.rotational) {
            (true, _) => "virtual",
            (false, true) => "rotating",
            (false, false) => "flash",
        };
        write!(f, "{}: {{ scheduler: {}, suitable: {}, ", self.disk, self.scheduler, self.suitable())?;
        write!(f, "rotational: {}, kind: {kind} }}", u8::from(self.rotational))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(rotational: bool, is_virtual: bool, scheduler: &str) -> Queue {
        let choices = ["none", "mq-deadline", "bfq"].map(str::to_owned).to_vec();
        Queue { disk: "sda".into(), rotational, is_virtual, scheduler: scheduler.into(), choices }
    }

    #[test]
    fn a_scheduler_is_for_heads_that_move() {
        assert!(queue(true, false, "mq-deadline").is_suitable() && !queue(true, false, "none").is_suitable());
        assert!(queue(false, false, "none").is_suitable() && !queue(false, false, "bfq").is_suitable());
        assert!(queue(true, true, "none").is_suitable() && !queue(true, true, "mq-deadline").is_suitable());
        let without = Queue { choices: vec!["none".into()], ..queue(true, false, "none") };
        assert!(without.is_suitable(), "there is no other one to choose");
        let text = "sda: { scheduler: bfq, suitable: mq-deadline, rotational: 1, kind: rotating }";
        assert_eq!(queue(true, false, "bfq").to_string(), text);
    }
}
