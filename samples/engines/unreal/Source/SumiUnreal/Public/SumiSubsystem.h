// The session as a game instance sees it: opened by the first request, ticked once per frame, closed with the last game
// instance. All game instances of a process share one session, such as the players of play in the editor. The settings
// are in SumiSettings.h. On the game thread.
#pragma once
#include "Containers/Ticker.h"
#include "CoreMinimal.h"
#include "Subsystems/GameInstanceSubsystem.h"
#include "SumiSession.h"

#include "SumiSubsystem.generated.h"

UCLASS()
class SUMIUNREAL_API USumiSubsystem : public UGameInstanceSubsystem {
    GENERATED_BODY()

  public:
    virtual void Initialize(FSubsystemCollectionBase& Collection) override;
    virtual void Deinitialize() override;
    // Opens it when it is not open yet. nullptr before Initialize, and as soon as Deinitialize has begun.
    sumi::Session* GetSession();
    // As sumi::Session's. A request that is left when Deinitialize begins is cancelled, and its listener called no
    // more: the objects that it would call are ending, too. Generate returns 0, and calls nothing, where GetSession is
    // nullptr.
    uint64 Generate(sumi::Request Wish, sumi::Listener Told);
    void Cancel(uint64 Number);

  private:
    bool Tick(float DeltaSeconds);
    FTSTicker::FDelegateHandle Ticker;
    bool bRunning = false; // from Initialize to Deinitialize
};
