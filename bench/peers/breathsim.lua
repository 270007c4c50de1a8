-- The breath model of Snabb issue 1414, for LuaJIT: what `bellows breathsim` is compared with.
--
-- A breath calls every pseudo-app once. An app that is busy adds 1 to a field of its own, over and over; one that is
-- idle returns. `nested` calls the apps from a loop within the loop of breaths, `flattened` from a loop that is built
-- of goto, which a tracing compiler sees as a part of the loop of breaths.
--
--   luajit bench/peers/breathsim.lua LOOP BUSY_AFTER BREATHS [APPS [INCREMENTS]]
--
-- LOOP is `nested` or `flattened`; BUSY_AFTER a number of breaths, or `never`. Prints the time of a breath, in
-- processor time, so that what else runs on the machine does not count.

local ffi = require("ffi")
ffi.cdef [[
   struct breathsim_time { long seconds, nanoseconds; };
   int clock_gettime(int clock, struct breathsim_time *time);
]]

local PROCESS_TIME = 2
local time = ffi.new("struct breathsim_time")

local function nanoseconds ()
   ffi.C.clock_gettime(PROCESS_TIME, time)
   return tonumber(time.seconds) * 1e9 + tonumber(time.nanoseconds)
end

local function mistake (message)
   io.stderr:write("breathsim.lua: ", message, "\n")
   os.exit(2)
end

local function whole_number (text, name)
   local number = tonumber(text)
   if not number or number < 0 or number % 1 ~= 0 then
      mistake(("%s must be a whole number, not '%s'"):format(name, tostring(text)))
   end
   return number
end

local shape = arg[1]
if shape ~= "nested" and shape ~= "flattened" then
   mistake("usage: breathsim.lua nested|flattened BUSY_AFTER|never BREATHS [APPS [INCREMENTS]]")
end
local busy_after = arg[2] == "never" and math.huge or whole_number(arg[2], "BUSY_AFTER")
local breaths = whole_number(arg[3], "BREATHS")
local napps = whole_number(arg[4] or "5", "APPS")
local increments = whole_number(arg[5] or "100", "INCREMENTS")

-- What the apps look at in every breath: globals, as in the original model.
breath, idle_breaths = 0, busy_after

-- Source text of its own for each app, so that each push is another prototype to the compiler.
local function new_app (number)
   local source = ([[
      local app = {}
      app.__index = app
      function app:push ()
         if breath >= idle_breaths then
            for _ = 1, %d do self.sum = self.sum + 1 end
         end
      end
      return app
   ]]):format(increments)
   local class = assert(load(source, "app" .. number))()
   return setmetatable({ sum = 0 }, class)
end

local apps = {}
for number = 1, napps do apps[number] = new_app(number) end

local function run_nested ()
   while breath < breaths do
      for number = 1, napps do apps[number]:push() end
      breath = breath + 1
   end
end

local function run_flattened ()
   ::next_breath::
   if breath >= breaths then return end
   local number = 1
   ::next_app::
   if number <= napps then
      apps[number]:push()
      number = number + 1
      goto next_app
   end
   breath = breath + 1
   goto next_breath
end

local start = nanoseconds()
if shape == "nested" then run_nested() else run_flattened() end
local elapsed = nanoseconds() - start

local expected = math.max(breaths - busy_after, 0) * increments
for number, app in ipairs(apps) do
   if app.sum ~= expected then
      mistake(("app %d counted to %d instead of %d"):format(number, app.sum, expected))
   end
end
print(("%.3f ns/breath"):format(elapsed / breaths))
