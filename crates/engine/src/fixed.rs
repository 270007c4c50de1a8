//! stand-in
use std::ops::Deref;
use std::ptr::NonNull;

pub(crate) struct Table<T>(NonNull<[T]>);
unsafe impl<T: Send> Send for Table<T> {}
impl<T> From<Vec<T>> for Table<T> {
    fn from(v: Vec<T>) -> Self {
        Table(NonNull::from(Box::leak(v.into_boxed_slice())))
    }
}
impl<T> FromIterator<T> for Table<T> {
    fn from_iter<I: IntoIterator<Item = T>>(i: I) -> Self {
        i.into_iter().collect::<Vec<T>>().into()
    }
}
impl<T> Deref for Table<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        unsafe { self.0.as_ref() }
    }
}
impl<T> std::ops::DerefMut for Table<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        unsafe { self.0.as_mut() }
    }
}
impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        drop(unsafe { Box::from_raw(self.0.as_ptr()) })
    }
}
