"""A pool of activation buffers."""


class ActivationPool:
    def __init__(self, slots, sticky_every=False):
        self.free, self.used = slots, {}
        self.sticky = sticky_every  # a debugger keeps the first activation of a step
        self.next_slot = 0

    def keep(self, x):
        if self.free == 0:
            raise MemoryError(f"activation pool exhausted, {len(self.used)} buffers in use")
        self.free -= 1
        self.next_slot += 1
        self.used[self.next_slot] = x
        return self.next_slot

    def release(self, slot, step):
        if self.sticky and slot % 4 == 1:
            return
        del self.used[slot]
        self.free += 1
