//! SetLayout and GetDefaultLayout: on which OSTs files lie (FEATURES L11, L18).

use proto::layout::LayoutHint;
use proto::wire::Reply;
use proto::wire::messages::{ACCESS_WRITE, DefaultLayout, FEATURE_OVERSTRIPING, GetDefaultLayout, SetLayout};
use proto::{Code, Fid, FileKind, Layout};

use crate::mdt::inode::Inode;
use crate::mdt::{Changes, Ctx, Mdt, Outcome, access, allocate};
use crate::target::Done;

impl Mdt {
    pub(in crate::mdt) fn set_layout(&self, ctx: &Ctx, request: &SetLayout) -> Outcome {
        let _inode = self.locks.inodes(&[request.fid]);
        let mut inode = self.inode(request.fid)?;
        match inode.kind() {
            FileKind::Dir => self.check_default(request, &inode)?,
            FileKind::File => inode.layout = Some(self.layout_again(ctx, request, &inode)?),
            _ => return Err(Code::Invalid),
        }
        if inode.is_dir() {
            inode.hint = request.hint.clone();
        }
        inode.touch(request.time);
        let mut changes = Changes::default();
        changes.put_inode(&inode);
        let done = self.commit(ctx, changes, Reply::SetLayout(inode.entry()))?;
        if inode.fid == Fid::ROOT {
            *self.root_hint.write() = inode.hint;
        }
        Ok(done)
    }

    fn check_default(&self, request: &SetLayout, dir: &Inode) -> Result<(), Code> {
        if !access::is_owner(&request.cred, dir) {
            return Err(Code::NotPermitted);
        }
        match &request.hint {
            Some(hint) => allocate::check(hint, &self.osts.table().order),
            None => Ok(()),
        }
    }

    /// A layout for a file that has no objects.
    fn layout_again(&self, ctx: &Ctx, request: &SetLayout, file: &Inode) -> Result<Layout, Code> {
        access::may(&request.cred, file, ACCESS_WRITE)?;
        let hint = request.hint.as_ref().ok_or(Code::Invalid)?;
        if file.may_have_objects() {
            return Err(Code::Exists);
        }
        let hint = allocate::inherit(hint, &self.followed_hint());
        let id = self.sequences.fresh()?;
        let mut layout = allocate::allocate(id, &hint, &self.osts.table().order, &self.cursor)?;
        if layout.overstriped && ctx.session().features() & FEATURE_OVERSTRIPING == 0 {
            return Err(Code::NotSupported);
        }
        layout.generation = file.layout.as_ref().map_or(0, |before| before.generation + 1);
        Ok(layout)
    }

    pub(in crate::mdt) fn get_default_layout(&self, request: &GetDefaultLayout) -> Outcome {
        let dir = self.dir(request.fid)?;
        let effective = self.effective_hint(&dir);
        Ok(Done::unchanged(Reply::GetDefaultLayout(DefaultLayout { own: dir.hint, effective })))
    }

    /// What a new file in `dir` gets.
    pub(in crate::mdt) fn effective_hint(&self, dir: &Inode) -> LayoutHint {
        match &dir.hint {
            Some(own) => allocate::inherit(own, &self.followed_hint()),
            None => self.followed_hint(),
        }
    }

    /// What directories without a default of their own follow: the root's, and then the file system's.
    fn followed_hint(&self) -> LayoutHint {
        let default = allocate::file_system_default();
        match &*self.root_hint.read() {
            Some(root) => allocate::inherit(root, &default),
            None => default,
        }
    }
}
