-- The breath model of Snabb issue 1414 for LuaJIT, which `cargo xtask peers breathsim` compares with Bellows.
--
-- A breath calls every pseudo-app once. A busy app increments its own field repeatedly; an idle app returns. `nested`
-- calls the apps from a loop within the loop over breaths, `flattened` from a loop built with goto, which a tracing
-- compiler sees as a part of the loop over breaths.
--
--   luajit bench/peers/breathsim.lua LOOP BUSY_AFTER BREATHS [APPS [INCREMENTS]]
--
--   luajit bench/peers/breathsim.lua LOOP turns BUSY_AFTER BREATHS_OF_A_TURN [APPS [INCREMENTS]]
--
-- LOOP is `nested` or `flattened`; BUSY_AFTER a number of breaths, or `never`. Prints the duration of a
-- breath in processor time, which excludes other programs.
--
-- With `turns` it takes turns with other processes (`bellows breathsim --model`) by the protocol of
-- crates/measure/lab/src/workers.rs: the idle breaths come first, then one turn per request, answered by a line of JSON with the
-- duration of a breath.

local ffi = require("ffi")
ffi.cdef [[
   struct breathsim_time { long seconds, nanoseconds; };
   int clock_gettime(int clock, struct breathsim_time *time);
]]

local MONOTONIC, PROCESS_TIME = 1, 2
local time = ffi.new("struct breathsim_time")

local function nanoseconds (clock)
   ffi.C.clock_gettime(clock, time)
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
local takes_turns = arg[2] == "turns"
if takes_turns then table.remove(arg, 2) end
local busy_after = arg[2] == "never" and math.huge or whole_number(arg[2], "BUSY_AFTER")
local breaths = whole_number(arg[3], "BREATHS")
local napps = whole_number(arg[4] or "5", "APPS")
local increments = whole_number(arg[5] or "100", "INCREMENTS")

-- The variables that apps read in every breath: globals, as in the original model.
breath, idle_breaths = 0, busy_after

-- Separate source text for each app, so that each push is a separate prototype to the compiler.
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

local function run_nested (breaths)
   while breath < breaths do
      for number = 1, napps do apps[number]:push() end
      breath = breath + 1
   end
end

local function run_flattened (breaths)
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

-- Continues until the total number of breaths is reached.
local run = shape == "nested" and run_nested or run_flattened

-- Fails unless every app was busy in every breath in which it should have been.
local function check ()
   local expected = math.max(breath - busy_after, 0) * increments
   for number, app in ipairs(apps) do
      if app.sum ~= expected then
         mistake(("app %d counted to %d instead of %d"):format(number, app.sum, expected))
      end
   end
end

if not takes_turns then
   local start = nanoseconds(PROCESS_TIME)
   run(breaths)
   local elapsed = nanoseconds(PROCESS_TIME) - start
   check()
   print(("%.3f ns/breath"):format(elapsed / breaths))
   return
end

-- A turn is timed in slices, and its figure is the median slice: interruptions by other programs affect few slices.
local SLICES = 20

local function turn (length)
   local slices, took, lost = {}, 0, 0
   local count = math.max(math.floor(length / SLICES), 1)
   for slice = 1, SLICES do
      local start = nanoseconds(MONOTONIC)
      run(breath + count)
      local elapsed = nanoseconds(MONOTONIC) - start
      slices[slice], took = elapsed / count, took + elapsed
   end
   local sorted = { unpack(slices) }
   table.sort(sorted)
   local median = (sorted[SLICES / 2] + sorted[SLICES / 2 + 1]) / 2
   for _, each in ipairs(slices) do
      if each > 2 * median then lost = lost + (each - median) / (median * SLICES + each - median) end
   end
   return median, took, math.min(lost, 1)
end

local function answer (text)
   io.stdout:write(text, "\n")
   io.stdout:flush()
end

-- The first line is the task, which the arguments have already given; each further line requests a turn.
if not io.read() then return end
run(busy_after < math.huge and busy_after or 0)
answer('{"machine":null,"outcome":{"Ok":null}}')
for _ in io.lines() do
   answer(('{"figures":[%.6f],"took":%.0f,"lost":%.6f}'):format(turn(breaths)))
end
check()
answer('{"Ok":null}')
